//! Golden models with keys and tensors changed, added or taken away.

use backstitch_core::DType;
use backstitch_models::gguf::{Gguf, Value, Writer};
use backstitch_models::{Error, Model};

/// The keys and tensors of a file.
pub struct File {
    keys: Vec<(String, Value<'static>)>,
    tensors: Vec<Tensor>,
}

struct Tensor {
    name: String,
    shape: Vec<usize>,
    data: Vec<f32>,
}

impl File {
    /// Read the golden model `name`.
    pub fn golden(name: &str) -> Self {
        let path = format!("{}/../goldens/models/{name}.gguf", env!("CARGO_MANIFEST_DIR"));
        // Keys may be texts, which borrow from the file.
        let bytes: &'static [u8] = std::fs::read(path).unwrap().leak();
        let gguf = Gguf::parse(bytes).unwrap();
        let keys = gguf.metadata().iter().map(|entry| (entry.key.to_owned(), entry.value.clone()));
        let tensors = gguf.tensors().iter().map(|info| {
            let mut data = vec![0.0; info.n_elements()];
            info.dtype().decode(gguf.tensor_data(info), &mut data).unwrap();
            Tensor { name: info.name().to_owned(), shape: info.shape().to_vec(), data }
        });
        File { keys: keys.collect(), tensors: tensors.collect() }
    }

    /// Set a key of the architecture.
    pub fn set(&mut self, key: &str, value: impl Into<Value<'static>>) -> &mut Self {
        self.set_whole(&format!("{}.{key}", self.architecture()), value)
    }

    /// Set a key by its whole name.
    pub fn set_whole(&mut self, key: &str, value: impl Into<Value<'static>>) -> &mut Self {
        self.keys.retain(|(found, _)| found != key);
        self.keys.push((key.into(), value.into()));
        self
    }

    /// Take a key of the architecture away.
    pub fn unset(&mut self, key: &str) -> &mut Self {
        let (key, before) = (format!("{}.{key}", self.architecture()), self.keys.len());
        self.keys.retain(|(found, _)| *found != key);
        assert_eq!(self.keys.len() + 1, before, "{key}");
        self
    }

    /// Make the file one of another architecture.
    pub fn rename_architecture(&mut self, new: &'static str) -> &mut Self {
        let old = format!("{}.", self.architecture());
        for (key, value) in &mut self.keys {
            if key == "general.architecture" {
                *value = new.into();
            } else if let Some(rest) = key.strip_prefix(&old) {
                *key = format!("{new}.{rest}");
            }
        }
        self
    }

    fn architecture(&self) -> &'static str {
        let found = self.keys.iter().find(|(key, _)| key == "general.architecture");
        let Some((_, Value::Str(name))) = found else { panic!("a golden has an architecture") };
        name
    }

    /// Return the shape and the numbers of a tensor.
    pub fn tensor(&self, name: &str) -> (Vec<usize>, Vec<f32>) {
        let found = self.tensors.iter().find(|tensor| tensor.name == name).expect(name);
        (found.shape.clone(), found.data.clone())
    }

    /// Add a tensor, or change the one of that name.
    pub fn put(&mut self, name: &str, shape: &[usize], data: Vec<f32>) -> &mut Self {
        assert_eq!(shape.iter().product::<usize>(), data.len(), "{name}");
        self.tensors.retain(|tensor| tensor.name != name);
        self.tensors.push(Tensor { name: name.into(), shape: shape.into(), data });
        self
    }

    /// Change the numbers of a tensor.
    pub fn change(&mut self, name: &str, f: impl FnOnce(&mut Vec<f32>)) -> &mut Self {
        let found = self.tensors.iter_mut().find(|tensor| tensor.name == name).expect(name);
        f(&mut found.data);
        self
    }

    /// Take a tensor away.
    pub fn take(&mut self, name: &str) -> (Vec<usize>, Vec<f32>) {
        let found = self.tensor(name);
        self.tensors.retain(|tensor| tensor.name != name);
        found
    }

    /// Return the names of the tensors that end with `end`.
    pub fn names(&self, end: &str) -> Vec<String> {
        let names = self.tensors.iter().map(|tensor| tensor.name.clone());
        names.filter(|name| name.ends_with(end)).collect()
    }

    /// Return the file, with all tensors in F32.
    pub fn bytes(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        for (key, value) in &self.keys {
            writer.set(key.as_str(), value.clone()).unwrap();
        }
        let bytes =
            self.tensors.iter().map(|tensor| tensor.data.iter().flat_map(|x| x.to_le_bytes()).collect());
        let data: Vec<Vec<u8>> = bytes.collect();
        for (Tensor { name, shape, .. }, data) in self.tensors.iter().zip(&data) {
            writer.tensor(name, shape, DType::F32, data).unwrap();
        }
        writer.to_bytes()
    }

    pub fn model(&self) -> Result<Model, Error> {
        Model::from_bytes(&self.bytes())
    }
}
