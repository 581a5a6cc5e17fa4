use crate::kernel_set::KernelSet;

#[test]
fn operations_are_counted_in_proportion() {
    for set in KernelSet::available() {
        for work in [set.multiply_floats_at_peak, set.multiply_bytes_at_peak] {
            let one = work(1);
            assert!(one >= 2 * 4 * 16, "{}: {one}", set.name());
            assert_eq!([work(0), work(7)], [0, 7 * one], "{}", set.name());
        }
    }
}

#[test]
fn every_element_is_read_once() {
    for n in [0, 1, 15, 16, 17, 63, 64, 65, 200] {
        let x: std::vec::Vec<f32> = (0..n).map(|i| f32::from_bits(i * i)).collect();
        let expected = (0..n).map(|i| (i * i) as i32).sum();
        for set in KernelSet::available() {
            assert_eq!((set.read)(&x), expected, "{} of {n}", set.name());
        }
    }
}
