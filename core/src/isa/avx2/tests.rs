use super::*;
use crate::isa::operations;
use crate::kernel_set::KernelSet;

#[test]
fn operations_are_those_of_the_scalar_set() {
    if KernelSet::named("avx2").is_ok() {
        // SAFETY: a set is there only where the processor has its features.
        operations::check(unsafe { Avx2::token() });
    }
}
