//! Setters for structs of parameters, which may get more fields: code outside of the crate makes them of their
//! default, one setter for each field that is to be another.

/// Makes a setter of each field, of its name.
macro_rules! setters {
    ($name:ident $(<$life:lifetime>)? { $($(#[$attribute:meta])* $field:ident: $type:ty),* $(,)? }) => {
        impl $(<$life>)? $name $(<$life>)? {
            $(
                #[doc = concat!("Return the same with another [`", stringify!($field), "`](#structfield.", stringify!($field), ").")]
                $(#[$attribute])*
                #[must_use]
                pub fn $field(self, $field: $type) -> Self {
                    Self { $field, ..self }
                }
            )*
        }
    };
}

pub(crate) use setters;
