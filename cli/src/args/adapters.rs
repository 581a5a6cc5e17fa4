//! Options of adapters.

use clap::Args;
use std::path::PathBuf;

/// Options that name adapters.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Adapters")]
pub struct AdapterArgs {
    /// LoRA adapter, a GGUF file, at scale 1; several are added up.
    #[arg(long = "lora", value_name = "FILE", value_delimiter = ',')]
    pub lora: Vec<PathBuf>,
    /// LoRA adapter at another scale.
    #[arg(long = "lora-scaled", value_name = "FILE:SCALE", value_delimiter = ',', value_parser = scaled)]
    pub lora_scaled: Vec<Scaled>,
    /// Control vector, a GGUF file, at scale 1; several are added up.
    #[arg(long = "control-vector", value_name = "FILE", value_delimiter = ',')]
    pub control_vector: Vec<PathBuf>,
    /// Control vector at another scale.
    #[arg(long = "control-vector-scaled", value_name = "FILE:SCALE", value_delimiter = ',',
          value_parser = scaled)]
    pub control_vector_scaled: Vec<Scaled>,
    /// First and last layer that control vectors act on [default: all from 1 on].
    #[arg(long = "control-vector-layer-range", num_args = 2, value_names = ["FIRST", "LAST"])]
    pub control_vector_layer_range: Option<Vec<usize>>,
}

/// A file with a scale.
#[derive(Debug, Clone, PartialEq)]
pub struct Scaled {
    /// Path of the file.
    pub path: PathBuf,
    /// Its scale.
    pub scale: f32,
}

/// Parse a file and its scale. The last colon is between both, because paths may have some.
fn scaled(text: &str) -> Result<Scaled, String> {
    let parsed = || {
        let (path, scale) = text.rsplit_once(':').filter(|(path, _)| !path.is_empty())?;
        let scale: f32 = scale.parse().ok().filter(|scale: &f32| scale.is_finite())?;
        Some(Scaled { path: path.into(), scale })
    };
    parsed().ok_or_else(|| "wanted a file, a colon, and a number, like style.gguf:0.5".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_stands_behind_the_last_colon() {
        let of = |path: &str, scale| Ok(Scaled { path: path.into(), scale });
        assert_eq!(scaled("a.gguf:0.5"), of("a.gguf", 0.5));
        assert_eq!(scaled("C:\\a.gguf:-1"), of("C:\\a.gguf", -1.0));
        for text in ["a.gguf", "a.gguf:", ":1", "a.gguf:x", "a.gguf:nan", "a.gguf:inf"] {
            assert!(scaled(text).is_err(), "{text}");
        }
    }
}
