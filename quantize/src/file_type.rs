//! The types that a model is quantised to: mixtures of tensor types, by llama.cpp's names.

use backstitch_core::DType;

/// Define [`FileType`]: name, number in `general.file_type`, and the type of most tensors.
macro_rules! file_types {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $dtype:ident;)*) => {
        /// A type of model files: most tensors have one type, some another; see [`crate::mix`].
        #[expect(non_camel_case_types, reason = "these are the names people know from llama.cpp")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum FileType {
            $($(#[$doc])* $name,)*
        }

        impl FileType {
            /// All types, in ascending order of their size.
            pub const ALL: &[FileType] = &[$(FileType::$name),*];

            /// Return the name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(FileType::$name => stringify!($name),)*
                }
            }

            /// Return the number that `general.file_type` has in such files.
            pub const fn number(self) -> u32 {
                match self {
                    $(FileType::$name => $number,)*
                }
            }

            /// Return the type of most tensors.
            pub const fn dtype(self) -> DType {
                match self {
                    $(FileType::$name => DType::$dtype,)*
                }
            }
        }
    };
}

file_types! {
    /// Signs alone; for models that were trained so.
    Q1_0 = 40, Q1_0;
    /// 1.56 bits a weight; needs an importance matrix.
    IQ1_S = 24, IQ1_S;
    /// -1, 0 and 1 in 1.69 bits; for models that were trained so.
    TQ1_0 = 36, TQ1_0;
    /// 1.75 bits; needs an importance matrix.
    IQ1_M = 31, IQ1_M;
    /// -1, 0 and 1 in 2.06 bits; for models that were trained so.
    TQ2_0 = 37, TQ2_0;
    /// 2.06 bits; needs an importance matrix.
    IQ2_XXS = 19, IQ2_XXS;
    /// -1 to 2 in 2.25 bits; for models that were trained so.
    Q2_0 = 41, Q2_0;
    /// 2.31 bits; needs an importance matrix.
    IQ2_XS = 20, IQ2_XS;
    /// 2.5 bits; needs an importance matrix.
    IQ2_S = 28, IQ2_XS;
    /// 2.7 bits; needs an importance matrix.
    IQ2_M = 29, IQ2_S;
    /// Q2_K with few larger tensors; needs an importance matrix.
    Q2_K_S = 21, Q2_K;
    /// Q2_K with Q3_K for attention values, outputs and down projections.
    Q2_K = 10, Q2_K;
    /// 3.06 bits; needs an importance matrix.
    IQ3_XXS = 23, IQ3_XXS;
    /// 3.3 bits.
    IQ3_XS = 22, IQ3_S;
    /// 3.44 bits.
    IQ3_S = 26, IQ3_S;
    /// 3.66 bits.
    IQ3_M = 27, IQ3_S;
    /// Q3_K, small.
    Q3_K_S = 11, Q3_K;
    /// Q3_K with Q4_K and Q5_K for what matters more.
    Q3_K_M = 12, Q3_K;
    /// Q3_K with Q5_K for what matters more.
    Q3_K_L = 13, Q3_K;
    /// 4.25 bits, uneven steps.
    IQ4_XS = 30, IQ4_XS;
    /// Experts in MXFP4, all else in Q8_0.
    MXFP4_MOE = 38, MXFP4;
    /// 4.5 bits, one scale for 32 weights.
    Q4_0 = 2, Q4_0;
    /// 4.5 bits, uneven steps.
    IQ4_NL = 25, IQ4_NL;
    /// Q4_K, small.
    Q4_K_S = 14, Q4_K;
    /// Q4_K with Q6_K for what matters more: the usual choice.
    Q4_K_M = 15, Q4_K;
    /// 5 bits, scale and minimum for 32 weights.
    Q4_1 = 3, Q4_1;
    /// 5.5 bits, one scale for 32 weights.
    Q5_0 = 8, Q5_0;
    /// Q5_K, small.
    Q5_K_S = 16, Q5_K;
    /// Q5_K with Q6_K for what matters more.
    Q5_K_M = 17, Q5_K;
    /// 6 bits, scale and minimum for 32 weights.
    Q5_1 = 9, Q5_1;
    /// 6.56 bits.
    Q6_K = 18, Q6_K;
    /// 8.5 bits: hardly any loss.
    Q8_0 = 7, Q8_0;
    /// Half precision.
    F16 = 1, F16;
    /// The upper half of single precision.
    BF16 = 32, BF16;
    /// Single precision.
    F32 = 0, F32;
}

impl FileType {
    /// Return the type with that name, in capitals or not, or with that number; `Q3_K`, `Q4_K` and
    /// `Q5_K` are those with `_M`.
    pub fn from_name(name: &str) -> Option<FileType> {
        let medium = match name.to_ascii_uppercase().as_str() {
            "Q3_K" => Some(FileType::Q3_K_M),
            "Q4_K" => Some(FileType::Q4_K_M),
            "Q5_K" => Some(FileType::Q5_K_M),
            _ => None,
        };
        let named = || Self::ALL.iter().copied().find(|ty| ty.name().eq_ignore_ascii_case(name));
        let number = || {
            let number: u32 = name.parse().ok()?;
            Self::ALL.iter().copied().find(|ty| ty.number() == number)
        };
        medium.or_else(named).or_else(number)
    }
}

impl std::fmt::Display for FileType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_lead_back_to_the_type() {
        for ty in FileType::ALL {
            assert_eq!(FileType::from_name(&ty.number().to_string()), Some(*ty));
            if *ty != FileType::Q2_K {
                assert_eq!(FileType::from_name(&ty.name().to_lowercase()), Some(*ty));
            }
        }
        assert_eq!(FileType::from_name("q4_k"), Some(FileType::Q4_K_M));
        assert_eq!(FileType::from_name("Q2_K"), Some(FileType::Q2_K));
        assert_eq!(FileType::from_name("4"), None);
        assert_eq!(FileType::from_name("Q9"), None);
    }
}
