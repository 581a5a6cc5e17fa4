//! What fuzz targets share: small memories of every kind that are filled as a model would, and forged state files.

pub mod edit;
pub mod forge;
pub mod kept;
pub mod live;
