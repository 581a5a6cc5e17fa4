//! Importance matrices in both forms, whole and damaged.

use super::*;

fn old(entries: &[(&str, i32, &[f32])], tail: &[u8]) -> Vec<u8> {
    let mut bytes = (entries.len() as i32).to_le_bytes().to_vec();
    for (name, count, values) in entries {
        bytes.extend((name.len() as i32).to_le_bytes());
        bytes.extend(name.as_bytes());
        bytes.extend(count.to_le_bytes());
        bytes.extend((values.len() as i32).to_le_bytes());
        bytes.extend(values.iter().flat_map(|x| x.to_le_bytes()));
    }
    bytes.extend(tail);
    bytes
}

fn sample() -> Imatrix {
    let mut imatrix = Imatrix::new("text", 16);
    imatrix.add("a.weight", 0, 1, &[1.0, 2.0, 3.0, 4.0], 2).unwrap();
    imatrix.add("experts.weight", 1, 3, &[2.0, 0.0], 2).unwrap();
    imatrix.set_n_chunks(7);
    imatrix
}

#[test]
fn what_is_written_is_read_again() {
    let again = Imatrix::read(&sample().to_bytes().unwrap()).unwrap();
    assert_eq!(again, sample());
    assert_eq!((again.n_entries(), again.n_chunks(), again.datasets()), (2, Some(7), &["text".into()][..]));
    assert_eq!(again.importance("a.weight"), Some(vec![5.0, 10.0]));
    // Experts that no token met count alike.
    assert_eq!(again.importance("experts.weight"), Some(vec![1.0, 1.0, 4.0, 0.0, 1.0, 1.0]));
    assert_eq!(again.importance("b.weight"), None);
}

#[test]
fn sums_of_the_inputs_themselves_are_passed_over() {
    let bytes = sample().to_bytes().unwrap();
    let (gguf, mut writer) = (Gguf::parse(&bytes).unwrap(), Writer::new());
    for entry in gguf.metadata() {
        writer.set(entry.key, entry.value.clone()).unwrap();
    }
    for tensor in gguf.tensors() {
        writer.tensor(tensor.name(), tensor.shape(), tensor.dtype(), gguf.tensor_data(tensor)).unwrap();
    }
    let sums: Vec<u8> = [-1.0f32, 2.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    writer.tensor("a.weight.in_sum", &[2], DType::F32, &sums).unwrap();
    assert_eq!(Imatrix::read(&writer.to_bytes()).unwrap(), sample());
}

#[test]
fn sums_of_another_shape_are_refused() {
    let mut imatrix = sample();
    assert!(imatrix.add("a.weight", 0, 1, &[1.0; 3], 3).is_err());
    assert!(imatrix.add("a.weight", 1, 1, &[1.0; 2], 2).is_err());
    assert!(imatrix.add("a.weight", 0, 1, &[1.0; 3], 2).is_err());
    assert_eq!(imatrix, sample());
}

#[test]
fn the_old_form_is_read() {
    let mut tail = 9_i32.to_le_bytes().to_vec();
    tail.extend(4_i32.to_le_bytes());
    tail.extend(b"text");
    let imatrix = Imatrix::read(&old(&[("a.weight", 2, &[4.0, 6.0]), ("b", 0, &[3.0])], &tail)).unwrap();
    assert_eq!(imatrix.importance("a.weight"), Some(vec![2.0, 3.0]));
    assert_eq!(imatrix.importance("b"), Some(vec![3.0]));
    assert_eq!((imatrix.n_chunks(), imatrix.datasets()), (Some(9), &["text".to_owned()][..]));
    assert_eq!(Imatrix::read(&old(&[("b", 1, &[3.0])], &[])).unwrap().n_chunks(), None);
}

#[test]
fn files_that_end_anywhere_are_refused_and_none_panics() {
    let whole = old(&[("a.weight", 2, &[4.0, 6.0])], &[]);
    for end in 0..whole.len() {
        assert!(Imatrix::read(&whole[..end]).is_err(), "{end}");
    }
    let whole = sample().to_bytes().unwrap();
    for end in 0..whole.len() - 31 {
        assert!(Imatrix::read(&whole[..end]).is_err(), "{end}");
    }
    for i in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[i] ^= 0x91;
        let _ = Imatrix::read(&damaged).map(|imatrix| imatrix.importance("a.weight"));
    }
}

#[test]
fn absurd_numbers_are_refused_before_memory_is_taken() {
    for number in [-1, 0, i32::MAX] {
        let bytes = number.to_le_bytes();
        assert!(matches!(Imatrix::read(&bytes), Err(Error::Imatrix { .. })));
        let mut bytes = 1_i32.to_le_bytes().to_vec();
        bytes.extend(number.to_le_bytes());
        bytes.extend([0; 64]);
        assert!(matches!(Imatrix::read(&bytes), Err(Error::Imatrix { .. })));
    }
}

#[test]
fn sums_that_no_squares_give_are_refused() {
    for bad in [f32::NAN, f32::INFINITY, -1.0] {
        let mut today = sample().to_bytes().unwrap();
        let at = today.windows(4).position(|bytes| bytes == 20f32.to_le_bytes()).unwrap();
        today[at..at + 4].copy_from_slice(&bad.to_le_bytes());
        for bytes in [today, old(&[("a.weight", 2, &[4.0, bad])], &[])] {
            let error = Imatrix::read(&bytes).unwrap_err().to_string();
            assert!(error.contains(&format!("is {bad}, wanted a sum of squares")), "{error}");
        }
    }
}
