use super::*;
use crate::isa::operations;
use crate::kernel_set::KernelSet;

#[test]
fn operations_are_those_of_the_scalar_set() {
    #[target_feature(enable = "neon")]
    fn plain() {
        operations::check(Neon::<Plain>::token());
    }
    #[target_feature(enable = "neon,dotprod")]
    fn dot() {
        operations::check(Neon::<Dot>::token());
    }
    #[target_feature(enable = "neon,dotprod,i8mm")]
    fn mixed() {
        operations::check(Neon::<Mixed>::token());
    }
    // SAFETY: this file is compiled only for processors that have NEON.
    unsafe { plain() };
    if KernelSet::named("dotprod").is_ok() {
        // SAFETY: a set is there only where the processor has its features.
        unsafe { dot() };
    }
    if KernelSet::named("i8mm").is_ok() {
        // SAFETY: as above.
        unsafe { mixed() };
    }
}
