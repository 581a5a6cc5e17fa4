//! Setters for structs of parameters.
//!
//! Such structs may get more fields, so code outside of the crate starts from their default and
//! calls one setter for each field that it changes.

/// Define a setter for each field, with the name of the field.
macro_rules! setters {
    ($name:ident { $($field:ident: $type:ty),* $(,)? }) => {
        impl $name {
            $(
                #[doc = concat!(
                    "Return these parameters with another [`", stringify!($field),
                    "`](#structfield.", stringify!($field), ").",
                )]
                #[must_use]
                pub fn $field(self, $field: $type) -> Self {
                    Self { $field, ..self }
                }
            )*
        }
    };
}

pub(crate) use setters;
