//! Compiles the contract in `proto/` to Rust and to a descriptor set.
//!
//! No `protoc` is needed: parsing and linking happen in this process, so the contract builds
//! wherever the rest of the workspace builds.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use prost::Message;
use tonic_prost_build::{Config, FileDescriptorSet};

fn main() -> Result<(), Box<dyn Error>> {
    let proto_root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../../proto");
    let out_dir = PathBuf::from(env::var("OUT_DIR")?);
    println!("cargo:rerun-if-changed={}", proto_root.display());

    let contract = protox::compile(proto_files(&proto_root)?, [&proto_root])?;
    fs::write(
        out_dir.join("contract.bin"),
        without_source_info(contract.clone()).encode_to_vec(),
    )?;

    let mut config = Config::new();
    config.enable_type_names();
    tonic_prost_build::configure()
        // A file chunk or a log chunk is handed on without being copied.
        .bytes(".")
        .compile_fds_with_config(contract, config)?;
    Ok(())
}

/// Every `.proto` file below `folder`, so that a new one cannot be forgotten in a list.
fn proto_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(proto_files(&path)?);
        } else if path
            .extension()
            .is_some_and(|extension| extension == "proto")
        {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Comments and positions are for readers of the sources; a running node has no use for them.
fn without_source_info(mut descriptors: FileDescriptorSet) -> FileDescriptorSet {
    for file in &mut descriptors.file {
        file.source_code_info = None;
    }
    descriptors
}
