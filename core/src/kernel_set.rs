//! The table of kernels, one an instruction set, and the choice of a set.
//!
//! Kernels are generic functions; here they are instantiated. For each set a macro writes one
//! function a kernel, compiled with the set's features switched on, and puts the pointers to them
//! into a static [`KernelSet`]. A processor's set is chosen once; every call goes through a pointer
//! afterwards, which costs nothing beside the work of a kernel.
//!
//! A kernel is added by one line in the list at the end of this file. Products of quantised weights
//! are no lines: they are compiled for every type in the table of [`crate::block`].

use crate::block::activations::QBlock;
use crate::block::quantised_types;
use crate::checksum::Sums;
use crate::format;
use crate::format::layout::BLOCK;
use crate::isa::Scalar;
#[cfg(all(target_arch = "x86_64", feature = "amx"))]
use crate::isa::amx;
#[cfg(target_arch = "x86_64")]
use crate::isa::avx2::Avx2;
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
use crate::isa::avx512::Avx512;
#[cfg(all(target_arch = "aarch64", target_feature = "neon", target_endian = "little"))]
use crate::isa::neon::{Dot, Mixed, Neon, Plain};
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
use crate::isa::wasm::Simd128;
use crate::kernels;
use crate::kernels::attention::{Join, Masks, Panels, Running, Scores, Shaping};
use crate::kernels::conv::Conv;
use crate::kernels::delta::{Delta, DeltaInputs};
use crate::kernels::gla::{Gla, GlaInputs};
use crate::kernels::kda::{Kda, KdaInputs};
use crate::kernels::matmul::Write;
use crate::kernels::quantised_cells::Floats;
use crate::kernels::rotate::Pairs;
use crate::kernels::selective::{Selective, SelectiveInputs};
use crate::kernels::ssd::{Ssd, Xbc};
use crate::kernels::wkv6::{Wkv6, Wkv6Inputs};
use crate::kernels::wkv7::{Wkv7, Wkv7Inputs};
use crate::packed::PackedType;
use crate::pool::Band;
use core::fmt;
use core::ops::Range;

/// Define [`KernelSet`] with a function pointer a kernel, and one static set an instruction set.
macro_rules! kernel_table {
    ($($(#[$doc:meta])* $name:ident = $path:path: fn($($arg:ident: $ty:ty),*) $(-> $ret:ty)?;)*) => {
        /// Every kernel, compiled for one instruction set. All sets give the same bits.
        ///
        /// A set can only be had where the processor can run it. [`KernelSet::detect`] chooses once
        /// a process; [`KernelSet::available`] lists all that this machine can run, so that tests
        /// can hold them to each other. The environment variable `BACKSTITCH_ISA` pins one by name
        /// ([`crate::isa`] lists them).
        ///
        /// ```
        /// use backstitch_core::KernelSet;
        ///
        /// let set = KernelSet::detect()?;
        /// let mut x = [1.0, -1.0, 0.0];
        /// (set.relu_in_place)(&mut x);
        /// assert_eq!(x, [1.0, 0.0, 0.0]);
        /// # Ok::<(), backstitch_core::SetUnavailable>(())
        /// ```
        pub struct KernelSet {
            name: &'static str,
            products: BlockProducts,
            $($(#[$doc])* pub $name: fn($($ty),*) $(-> $ret)?,)*
        }

        mod scalar_set {
            use super::*;
            $(fn $name($($arg: $ty),*) $(-> $ret)? {
                $path(Scalar::token(), $($arg),*)
            })*
            quantised_types!(compile_products(integer, none, Scalar, ()));
            pub(super) static SET: KernelSet = KernelSet { name: "scalar", products: PRODUCTS, $($name),* };
        }

        #[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
        mod simd128_set {
            use super::*;
            $(fn $name($($arg: $ty),*) $(-> $ret)? {
                $path(Simd128::token(), $($arg),*)
            })*
            quantised_types!(compile_products(integer, none, Simd128, ()));
            pub(super) static SET: KernelSet = KernelSet { name: "simd128", products: PRODUCTS, $($name),* };
        }

        kernel_table!(@set #[cfg(target_arch = "x86_64")] avx2_set, Avx2, "avx2", "avx2,fma,f16c";
            $($name = $path: fn($($arg: $ty),*) $(-> $ret)?;)*);
        kernel_table!(@set #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
            avx512_set, Avx512, "avx512", "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c";
            $($name = $path: fn($($arg: $ty),*) $(-> $ret)?;)*);
        kernel_table!(@set #[cfg(all(target_arch = "aarch64", target_feature = "neon", target_endian = "little"))]
            neon_set, Neon<Plain>, "neon", "neon";
            $($name = $path: fn($($arg: $ty),*) $(-> $ret)?;)*);
    };
    (@set #[$where:meta] $module:ident, $token:ty, $label:literal, $features:literal;
        $($name:ident = $path:path: fn($($arg:ident: $ty:ty),*) $(-> $ret:ty)?;)*) => {
        #[$where]
        mod $module {
            use super::*;
            $(fn $name($($arg: $ty),*) $(-> $ret)? {
                #[target_feature(enable = $features)]
                fn compiled($($arg: $ty),*) $(-> $ret)? {
                    $path(<$token>::token(), $($arg),*)
                }
                // SAFETY: `running` hands this set out only where the processor has these features.
                #[allow(unsafe_code)]
                unsafe { compiled($($arg),*) }
            })*
            quantised_types!(compile_products(integer, none, $token, $features));
            pub(super) const KERNELS: KernelSet = KernelSet { name: $label, products: PRODUCTS, $($name),* };
            pub(super) static SET: KernelSet = KERNELS;
        }
    };
}

/// A product of packed float weights `w` (whole panels) and rows `x` of `n_cols` floats.
pub(crate) type MultiplyFloats =
    fn(w: &[u8], x: &[f32], n_cols: usize, out: &mut Band<'_, f32>, write: Write);

/// A product of packed quantised weights `w` (whole panels) and rows `x` of `n_blocks` blocks (not
/// 0), in the order of [`crate::quantize`].
pub(crate) type MultiplyBlocks =
    fn(w: &[u8], x: &[QBlock], n_blocks: usize, out: &mut Band<'_, f32>, write: Write);

/// The product with packed weights of one type; see [`mod@crate::matmul`] for the order of
/// operations.
pub(crate) enum Multiply {
    /// Of float weights.
    Floats(MultiplyFloats),
    /// Of quantised weights.
    Blocks(MultiplyBlocks),
}

/// Define [`BlockProducts`] with a field for each of the quantised types given, and the choice of a
/// product by type.
macro_rules! define_products {
    (() $($name:ident = $id:literal, $module:ident: $len:literal in $bytes:literal;)*) => {
        /// The products of quantised weights of one instruction set, by type.
        #[derive(Clone, Copy)]
        #[allow(non_snake_case)]
        struct BlockProducts {
            $($name: MultiplyBlocks,)*
        }

        impl KernelSet {
            /// Return the product with weights of type `kind`.
            pub(crate) fn multiply(&self, kind: PackedType) -> Multiply {
                match kind {
                    PackedType::F32 => Multiply::Floats(self.multiply_f32),
                    PackedType::F16 => Multiply::Floats(self.multiply_f16),
                    PackedType::BF16 => Multiply::Floats(self.multiply_bf16),
                    $(PackedType::$name => Multiply::Blocks(self.products.$name),)*
                }
            }
        }
    };
}

quantised_types!(define_products());

/// Define `PRODUCTS`: the kernel in module `$from` of `kernels::matmul`, compiled for each of the
/// quantised types given. `$features` are those of the instruction set, `()` where it needs none.
/// `$base` is the set whose products do what the kernel leaves to them, `none` for `integer`, which
/// leaves nothing.
macro_rules! compile_products {
    (($from:ident, $base:ident, $token:ty, $features:tt)
        $($name:ident = $id:literal, $module:ident: $len:literal in $bytes:literal;)*) => {
        pub(super) const PRODUCTS: BlockProducts = BlockProducts {
            $($name: compile_products!(@compile $from, $base, $token, $features, $name),)*
        };
    };
    (@compile $from:ident, $base:ident, $token:ty, (), $name:ident) => {
        |w, x, n_blocks, out, write| {
            compile_products!(@call $from, $base, $token, $name, w, x, n_blocks, out, write)
        }
    };
    (@compile $from:ident, $base:ident, $token:ty, $features:literal, $name:ident) => {{
        fn product(w: &[u8], x: &[QBlock], n_blocks: usize, out: &mut Band<'_, f32>, write: Write) {
            #[target_feature(enable = $features)]
            fn compiled(w: &[u8], x: &[QBlock], n_blocks: usize, out: &mut Band<'_, f32>, write: Write) {
                compile_products!(@call $from, $base, $token, $name, w, x, n_blocks, out, write)
            }
            // SAFETY: `running` hands a set out only where the processor has its features; a set
            // that calls these products as its base has them too.
            #[allow(unsafe_code)]
            unsafe { compiled(w, x, n_blocks, out, write) }
        }
        product
    }};
    // Kernels over any instruction set are generic over its token, the others know theirs.
    (@call integer, $base:ident, $token:ty, $name:ident, $($arg:ident),*) => {
        kernels::matmul::integer::multiply::<_, format::$name>(<$token>::token(), $($arg),*)
    };
    (@call $from:ident, $base:ident, $token:ty, $name:ident, $($arg:ident),*) => {
        kernels::matmul::$from::multiply::<format::$name>(<$token>::token(), $base::PRODUCTS.$name, $($arg),*)
    };
}

/// Define sets that are another set but for products of quantised weights, which come from another
/// module of `kernels::matmul`.
macro_rules! with_products {
    ($(#[$where:meta] $module:ident, $token:ty, $label:literal, $features:literal, $base:ident, $from:ident;)*) => {
        $(#[$where]
        mod $module {
            use super::*;
            quantised_types!(compile_products($from, $base, $token, $features));
            fn multiply_bytes_at_peak(n_rounds: usize) -> u64 {
                #[target_feature(enable = $features)]
                fn compiled(n_rounds: usize) -> u64 {
                    kernels::peak::$from::multiply_bytes(<$token>::token(), n_rounds)
                }
                // SAFETY: `running` hands this set out only where the processor has these features.
                #[allow(unsafe_code)]
                unsafe { compiled(n_rounds) }
            }
            pub(super) const KERNELS: KernelSet =
                KernelSet { name: $label, multiply_bytes_at_peak, products: PRODUCTS, ..$base::KERNELS };
            pub(super) static SET: KernelSet = KERNELS;
        })*
    };
}

with_products! {
    #[cfg(all(target_arch = "x86_64", feature = "amx"))]
    amx_set, Avx512, "amx", "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c", avx512_set, tiles;
    #[cfg(all(target_arch = "aarch64", target_feature = "neon", target_endian = "little"))]
    dotprod_set, Neon<Dot>, "dotprod", "neon,dotprod", neon_set, integer;
    #[cfg(all(target_arch = "aarch64", target_feature = "neon", target_endian = "little"))]
    i8mm_set, Neon<Mixed>, "i8mm", "neon,dotprod,i8mm", dotprod_set, pairs;
}

/// The refusal of a kernel set by name. Its text lists the sets that can be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetUnavailable {
    /// The value of the environment variable `BACKSTITCH_ISA`, if that asked for the set.
    pub variable: Option<&'static str>,
}

impl fmt::Display for SetUnavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = self.variable {
            write!(f, "BACKSTITCH_ISA={name:?}: ")?;
        }
        f.write_str("no such kernel set on this processor; available:")?;
        KernelSet::available().try_for_each(|set| write!(f, " {}", set.name))
    }
}

impl core::error::Error for SetUnavailable {}

impl fmt::Debug for KernelSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KernelSet({})", self.name)
    }
}

#[cfg(all(target_arch = "x86_64", feature = "std"))]
macro_rules! has {
    ($($feature:tt),*) => { $(std::is_x86_feature_detected!($feature))&&* };
}
#[cfg(all(target_arch = "aarch64", target_feature = "neon", target_endian = "little", feature = "std"))]
macro_rules! has {
    ($($feature:tt),*) => { $(std::arch::is_aarch64_feature_detected!($feature))&&* };
}
#[cfg(all(
    any(
        target_arch = "x86_64",
        all(target_arch = "aarch64", target_feature = "neon", target_endian = "little")
    ),
    not(feature = "std")
))]
macro_rules! has {
    ($($feature:tt),*) => { $(cfg!(target_feature = $feature))&&* };
}

/// A set, and a function that returns true if this processor can run it. Asking for tiles changes
/// the process's rights, so the functions are called only when needed.
type Candidate = (&'static KernelSet, fn() -> bool);

#[cfg(target_arch = "x86_64")]
const CANDIDATES: &[Candidate] = &[
    #[cfg(feature = "amx")]
    (&amx_set::SET, || has_avx512() && amx::permission() == amx::Permission::Granted),
    #[cfg(feature = "avx512")]
    (&avx512_set::SET, has_avx512),
    (&avx2_set::SET, has_avx2),
    (&scalar_set::SET, || true),
];

#[cfg(all(target_arch = "aarch64", target_feature = "neon", target_endian = "little"))]
const CANDIDATES: &[Candidate] = &[
    (&i8mm_set::SET, || has!("dotprod", "i8mm")),
    (&dotprod_set::SET, || has!("dotprod")),
    (&neon_set::SET, || true),
    (&scalar_set::SET, || true),
];

#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
const CANDIDATES: &[Candidate] = &[(&simd128_set::SET, || true), (&scalar_set::SET, || true)];

#[cfg(not(any(
    target_arch = "x86_64",
    all(target_arch = "aarch64", target_feature = "neon", target_endian = "little"),
    all(target_arch = "wasm32", target_feature = "simd128")
)))]
const CANDIDATES: &[Candidate] = &[(&scalar_set::SET, || true)];

#[cfg(target_arch = "x86_64")]
fn has_avx2() -> bool {
    has!("avx2", "fma", "f16c")
}

#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
fn has_avx512() -> bool {
    has_avx2() && has!("avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512vnni")
}

/// Return those candidates that run here.
fn running(candidates: impl Iterator<Item = Candidate>) -> impl Iterator<Item = &'static KernelSet> {
    candidates.filter(|(_, runs)| runs()).map(|(set, _)| set)
}

impl KernelSet {
    /// Return the set's name: what `BACKSTITCH_ISA` takes.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Return the scalar set, which runs anywhere and defines the results of the others.
    pub fn scalar() -> &'static Self {
        &scalar_set::SET
    }

    /// Return all sets that this processor can run, fastest first.
    pub fn available() -> impl Iterator<Item = &'static Self> {
        running(CANDIDATES.iter().copied())
    }

    /// Return the set called `name`.
    ///
    /// # Errors
    /// [`SetUnavailable`] if there is none, or this processor lacks it.
    pub fn named(name: &str) -> Result<&'static Self, SetUnavailable> {
        running(CANDIDATES.iter().copied().filter(|(set, _)| set.name == name))
            .next()
            .ok_or(SetUnavailable { variable: None })
    }

    /// Return the name of the set that this processor has but the operating system keeps from this
    /// process, if there is one.
    pub fn refused() -> Option<&'static str> {
        #[cfg(all(target_arch = "x86_64", feature = "amx"))]
        if has_avx512() && amx::permission() == amx::Permission::Refused {
            return Some(amx_set::SET.name);
        }
        None
    }

    /// Return the fastest set; with `std`, the set that the environment variable `BACKSTITCH_ISA`
    /// names, if it is set, and not empty, at the first call.
    ///
    /// # Errors
    /// [`SetUnavailable`] if the variable names no set that can be had: never a silent fallback.
    pub fn detect() -> Result<&'static Self, SetUnavailable> {
        #[cfg(feature = "std")]
        {
            static CHOSEN: std::sync::OnceLock<Result<&KernelSet, SetUnavailable>> =
                std::sync::OnceLock::new();
            let stated = std::env::var_os("BACKSTITCH_ISA").filter(|name| !name.is_empty());
            let choose = || match stated {
                // This happens once, so that what is leaked does not grow.
                Some(name) => Self::named(&name.to_string_lossy()).map_err(|_| SetUnavailable {
                    variable: Some(name.to_string_lossy().into_owned().leak()),
                }),
                None => Ok(Self::fastest()),
            };
            *CHOSEN.get_or_init(choose)
        }
        #[cfg(not(feature = "std"))]
        Ok(Self::fastest())
    }

    fn fastest() -> &'static Self {
        // The list ends with the scalar set, which runs anywhere.
        Self::available().next().unwrap_or(Self::scalar())
    }
}

kernel_table! {
    /// `x[i] = exp(x[i])`, any length.
    exp_in_place = kernels::map::exp_in_place: fn(x: &mut [f32]);
    /// `x[i] = tanh(x[i])`, any length.
    tanh_in_place = kernels::map::tanh_in_place: fn(x: &mut [f32]);
    /// `x[i] = 1 / (1 + exp(-x[i]))`, any length.
    sigmoid_in_place = kernels::map::sigmoid_in_place: fn(x: &mut [f32]);
    /// `x[i] = x[i] / (1 + exp(-x[i]))`, any length.
    silu_in_place = kernels::map::silu_in_place: fn(x: &mut [f32]);
    /// `x[i] = gelu(x[i])`, by the tanh form, any length.
    gelu_in_place = kernels::map::gelu_in_place: fn(x: &mut [f32]);
    /// `x[i] = max(x[i], 0)`, any length.
    relu_in_place = kernels::map::relu_in_place: fn(x: &mut [f32]);
    /// `x[i] = max(x[i], 0)^2`, any length.
    squared_relu_in_place = kernels::map::squared_relu_in_place: fn(x: &mut [f32]);
    /// `x[i] = ln(1 + exp(x[i]))`, any length.
    softplus_in_place = kernels::map::softplus_in_place: fn(x: &mut [f32]);
    /// `x[i] *= factor`, any length.
    scale_in_place = kernels::map::scale_in_place: fn(x: &mut [f32], factor: f32);
    /// `x[i] = cap * tanh(x[i] / cap)`, any length; `cap` is not 0.
    soft_cap_in_place = kernels::map::soft_cap_in_place: fn(x: &mut [f32], cap: f32);
    /// `x[i] += y[i]`, up to the end of the shorter.
    add = kernels::map::add: fn(x: &mut [f32], y: &[f32]);
    /// `x[i] *= y[i]`, up to the end of the shorter.
    mul = kernels::map::mul: fn(x: &mut [f32], y: &[f32]);
    /// `x[i] += y[i] * factor` with one rounding, up to the end of the shorter.
    add_scaled = kernels::map::add_scaled: fn(x: &mut [f32], y: &[f32], factor: f32);
    /// `out[i] = x[i] + (y[i] - x[i]) * mix` with one rounding after the difference, where `mix` is
    /// `weight` (one row for all), `by` (of the length of `out`), or, if neither is empty, the sum
    /// of both; `x` and `y` are as long as `out`, a whole number of rows.
    lerp = kernels::map::lerp: fn(x: &[f32], y: &[f32], weight: &[f32], by: &[f32], out: &mut [f32]);
    /// `gate[i] = silu(gate[i]) * up[i]`.
    silu_mul = kernels::glu::silu_mul: fn(gate: &mut [f32], up: &[f32]);
    /// `gate[i] = gelu(gate[i]) * up[i]`, by the tanh form.
    gelu_mul = kernels::glu::gelu_mul: fn(gate: &mut [f32], up: &[f32]);
    /// `x[i] *= silu(gate[i])`: the gate behind a Mamba-2 scan.
    mul_silu = kernels::glu::mul_silu: fn(x: &mut [f32], gate: &[f32]);
    /// `x[i] *= gelu(gate[i])`, by the tanh form.
    mul_gelu = kernels::glu::mul_gelu: fn(x: &mut [f32], gate: &[f32]);
    /// `x[i] *= max(gate[i], 0)`.
    mul_relu = kernels::glu::mul_relu: fn(x: &mut [f32], gate: &[f32]);
    /// `x[i] *= max(gate[i], 0)^2`.
    mul_squared_relu = kernels::glu::mul_squared_relu: fn(x: &mut [f32], gate: &[f32]);
    /// `x[i] = (x[i] + 1) * g * sigmoid(1.702 * g)`, where g is `gate[i]` and at most 7, and `x[i]`
    /// is taken between -7 and 7: the gate of gpt-oss.
    mul_clamped_swish = kernels::glu::mul_clamped_swish: fn(x: &mut [f32], gate: &[f32]);
    /// `x[i] *= tanh(gate[i])`.
    mul_tanh = kernels::glu::mul_tanh: fn(x: &mut [f32], gate: &[f32]);
    /// `x[i] *= 1 / (1 + exp(-gate[i]))`.
    mul_sigmoid = kernels::glu::mul_sigmoid: fn(x: &mut [f32], gate: &[f32]);
    /// Root-mean-square norm of each row of `n`: `out[i] = x[i] * (1 / sqrt(mean(x^2) + eps)) *
    /// weight[i]`. `weight` is empty (no factor) or k rows of `n`: row r of `x` uses its row `r %
    /// k`, so that heads share one and groups have their own. `out` has the length of `x`.
    rms_norm = kernels::norm::rms_norm: fn(x: &[f32], n: usize, weight: &[f32], eps: f32, out: &mut [f32]);
    /// Root-mean-square norm like `rms_norm`, in place.
    rms_norm_in_place = kernels::norm::rms_norm_in_place: fn(x: &mut [f32], n: usize, weight: &[f32], eps: f32);
    /// Layer norm of each row of `n`, in place: mean 0 and variance 1, times `weight`, plus `bias`;
    /// both are empty or k rows of `n`, used as by `rms_norm`.
    layer_norm_in_place = kernels::norm::layer_norm_in_place: fn(x: &mut [f32], n: usize, weight: &[f32], bias: &[f32], eps: f32);
    /// Turns the start of each head of `d` elements by one row of
    /// [`Rope::angles`](crate::rope::Rope::angles).
    rotate = kernels::rotate::rotate: fn(x: &mut [f32], d: usize, pairs: Pairs, angles: &[f32]);
    /// Set `out[i]` to the bits of `x[i]` rounded to half precision, to nearest even, up to the end
    /// of the shorter.
    encode_f16 = kernels::stored::encode_f16: fn(x: &[f32], out: &mut [u16]);
    /// Set `out[i]` to the bits of `x[i]` rounded to bfloat16, to nearest even, up to the end of
    /// the shorter.
    encode_bf16 = kernels::stored::encode_bf16: fn(x: &[f32], out: &mut [u16]);
    /// Return the number of rows of the tallest attention tile.
    attention_rows = kernels::attention::tile_rows: fn() -> usize;
    /// Dot products of a tile's queries `[d, rows]` with a span's keys; see [`crate::attention`]
    /// for all of these.
    scores_f32 = kernels::attention::scores_f32: fn(q: &[f32], keys: &Panels<'_>, soon: &Panels<'_>, resume: bool, out: &mut [Scores]);
    /// Dot products of a tile's queries with F16 keys.
    scores_f16 = kernels::attention::scores_f16: fn(q: &[f32], keys: &Panels<'_>, soon: &Panels<'_>, resume: bool, out: &mut [Scores]);
    /// Dot products of a tile's queries with BF16 keys.
    scores_bf16 = kernels::attention::scores_bf16: fn(q: &[f32], keys: &Panels<'_>, soon: &Panels<'_>, resume: bool, out: &mut [Scores]);
    /// Make floats of piece `piece`, 32 dimensions, of a span's Q8_0 keys.
    keys_q8_0 = kernels::quantised_cells::keys_q8_0: fn(parts: &Panels<'_>, d_k: usize, piece: usize, out: &mut Floats);
    /// Make floats of piece `piece` of a span's Q4_0 keys.
    keys_q4_0 = kernels::quantised_cells::keys_q4_0: fn(parts: &Panels<'_>, d_k: usize, piece: usize, out: &mut Floats);
    /// Make floats of piece `piece` of a span's Q8_0 values.
    values_q8_0 = kernels::quantised_cells::values_q8_0: fn(parts: &Panels<'_>, d_v: usize, piece: usize, out: &mut Floats);
    /// Make floats of piece `piece` of a span's Q4_0 values.
    values_q4_0 = kernels::quantised_cells::values_q4_0: fn(parts: &Panels<'_>, d_v: usize, piece: usize, out: &mut Floats);
    /// Turn a span's scores into exponentials, and join maximum and sum to the running ones.
    softmax_span = kernels::attention::softmax: fn(scores: &mut [Scores], masks: &[Masks], shaping: Shaping, running: &mut Running) -> Join;
    /// Compute a span's weighted values, joined to those before it.
    values_f32 = kernels::attention::values_f32: fn(p: &[Scores], masks: &[Masks], v: &Panels<'_>, soon: &Panels<'_>, join: &Join, out: &mut [&mut [f32]]);
    /// Compute a span's weighted values of F16.
    values_f16 = kernels::attention::values_f16: fn(p: &[Scores], masks: &[Masks], v: &Panels<'_>, soon: &Panels<'_>, join: &Join, out: &mut [&mut [f32]]);
    /// Compute a span's weighted values of BF16.
    values_bf16 = kernels::attention::values_bf16: fn(p: &[Scores], masks: &[Masks], v: &Panels<'_>, soon: &Panels<'_>, join: &Join, out: &mut [&mut [f32]]);
    /// Joins the spans of one row that were computed apart.
    merge_spans = kernels::attention::merge: fn(parts: &mut dyn Iterator<Item = &[f32]>, out: &mut [f32], running: &mut Running);
    /// Divides a row of weighted values by its sum of weights.
    finish_row = kernels::attention::finish: fn(out: &mut [f32], max: f32, sum: f32, sink: Option<f32>);
    /// Causal convolution of rows behind others; see [`crate::scan::Conv`].
    conv = kernels::conv::conv: fn(conv: &Conv<'_>, before: &[f32], x: &[f32], out: &mut [f32]);
    /// The recurrence of some heads over some tokens; see [`crate::scan::Ssd`].
    ssd = kernels::ssd::ssd: fn(ssd: &Ssd<'_>, heads: Range<usize>, xbc: &Xbc<'_>, dt: &[f32], states: &mut [f32], out: &mut Band<'_, f32>);
    /// The gated delta rule of some heads over some tokens; see [`crate::scan::Delta`].
    delta = kernels::delta::delta: fn(delta: &Delta<'_>, heads: Range<usize>, x: &DeltaInputs<'_>, states: &mut [f32], out: &mut Band<'_, f32>);
    /// Gated linear attention of some heads over some tokens; see [`crate::scan::Gla`].
    gla = kernels::gla::gla: fn(gla: &Gla, heads: Range<usize>, x: &GlaInputs<'_>, states: &mut [f32], out: &mut Band<'_, f32>);
    /// Kimi delta attention of some heads over some tokens; see [`crate::scan::Kda`].
    kda = kernels::kda::kda: fn(kda: &Kda<'_>, heads: Range<usize>, x: &KdaInputs<'_>, states: &mut [f32], out: &mut Band<'_, f32>);
    /// The recurrence of RWKV 6 of some heads over some tokens; see [`crate::scan::Wkv6`].
    wkv6 = kernels::wkv6::wkv6: fn(wkv: &Wkv6<'_>, heads: Range<usize>, x: &Wkv6Inputs<'_>, states: &mut [f32], out: &mut Band<'_, f32>);
    /// The recurrence of RWKV 7 of some heads over some tokens; see [`crate::scan::Wkv7`].
    wkv7 = kernels::wkv7::wkv7: fn(wkv: &Wkv7<'_>, heads: Range<usize>, x: &Wkv7Inputs<'_>, states: &mut [f32], out: &mut Band<'_, f32>);
    /// The selective scan of some channels over some tokens; see [`crate::scan::Selective`].
    selective = kernels::selective::selective: fn(scan: &Selective<'_>, input: &SelectiveInputs<'_>, states: &mut [f32], out: &mut Band<'_, f32>);
    /// `x[i] = exp(x[i]) / sum of exp(x)`, without overflow.
    softmax_in_place = kernels::sampling::softmax_in_place: fn(x: &mut [f32]);
    /// The index of the largest element, of several equal ones the lowest; none if there is no
    /// element but NaN.
    argmax = kernels::sampling::argmax: fn(x: &[f32]) -> Option<usize>;
    /// Quantises rows of `n_blocks` blocks (not 0); in `out` all first blocks come first, then all
    /// second ones. See [`QBlock`].
    quantize = kernels::quantize::quantize: fn(x: &[[f32; BLOCK]], n_blocks: usize, out: &mut [QBlock]);
    /// `out[t][r] = sum over k of w[r][k] * x[t][k]`, for all rows `x` of `n_cols` and whole panels
    /// `w`; see [`mod@crate::matmul`] for the order of operations and for all of these.
    multiply_f32 = kernels::matmul::multiply_f32: fn(w: &[u8], x: &[f32], n_cols: usize, out: &mut Band<'_, f32>, write: Write);
    /// Multiply F16 weights; see `multiply_f32`.
    multiply_f16 = kernels::matmul::multiply_f16: fn(w: &[u8], x: &[f32], n_cols: usize, out: &mut Band<'_, f32>, write: Write);
    /// Multiply BF16 weights; see `multiply_f32`.
    multiply_bf16 = kernels::matmul::multiply_bf16: fn(w: &[u8], x: &[f32], n_cols: usize, out: &mut Band<'_, f32>, write: Write);
    /// Multiply and add floats in registers, as fast as the set can; return the number of
    /// operations, where a multiplication and an addition are two. Time it to know the limit of
    /// products with F32, F16 and BF16 weights.
    multiply_floats_at_peak = kernels::peak::multiply_floats: fn(n_rounds: usize) -> u64;
    /// Multiply bytes and add the products in registers or tiles; the limit of products with
    /// quantised weights.
    multiply_bytes_at_peak = kernels::peak::integer::multiply_bytes: fn(n_rounds: usize) -> u64;
    /// The wrapping sum of the bits of all elements, at the speed at which the set can read them.
    read = kernels::peak::read: fn(x: &[f32]) -> i32;
    /// Adds whole stripes to sums; see [`crate::checksum`].
    sum_stripes = kernels::checksum::sum_stripes: fn(sums: &mut Sums, stripes: &[[u8; 64]]);
    /// Add whole stripes to sums while copying them, past the caches, as fast as the memory gives
    /// and takes them. Up to the end of the shorter.
    sum_and_copy_stripes = kernels::checksum::sum_and_copy_stripes: fn(sums: &mut Sums, from: &[[u8; 64]], to: &mut [[u8; 64]]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_listed_set_is_found_by_its_name() {
        for set in KernelSet::available() {
            assert_eq!(KernelSet::named(set.name()).unwrap().name(), set.name());
        }
        assert_eq!(KernelSet::named("abacus").unwrap_err(), SetUnavailable { variable: None });
    }

    #[test]
    fn the_sets_are_those_that_this_processor_is_known_to_have() {
        let found: std::vec::Vec<_> = KernelSet::available().map(KernelSet::name).collect();
        // An emulator's user says which sets its processor has.
        if let Ok(expected) = std::env::var("EXPECTED_KERNEL_SETS") {
            assert_eq!(found.join(" "), expected);
        }
        // No test notices a missing set; the person who runs the tests has to be told.
        let all = CANDIDATES.iter().map(|(set, _)| set.name());
        let lacking: std::vec::Vec<_> = all.filter(|name| !found.contains(name)).collect();
        std::println!("kernel sets lacking here: {}", lacking.join(" "));
    }

    #[test]
    fn exp_has_the_same_bits_on_every_set() {
        let inputs: [f32; 37] = core::array::from_fn(|i| match i {
            0 => f32::INFINITY,
            1 => f32::NEG_INFINITY,
            2 => -0.0,
            3 => 88.9,
            4 => -104.5,
            _ => (i as f32 - 18.0) * 6.1,
        });
        let mut expected = inputs;
        (KernelSet::scalar().exp_in_place)(&mut expected);
        for set in KernelSet::available() {
            let mut got = inputs;
            (set.exp_in_place)(&mut got);
            assert_eq!(got.map(f32::to_bits), expected.map(f32::to_bits), "{}", set.name());
        }
    }
}
