//! Compiles the definitions in `proto/` to clients. Runs in this process: no `protoc` is needed.

use std::error::Error;

use tonic_prost_build::Config;

const DEFINITIONS: &[&str] = &[
    "containerd/containers.proto",
    "containerd/images.proto",
    "containerd/namespaces.proto",
    "containerd/snapshots.proto",
    "containerd/tasks.proto",
    "containerd/task_types.proto",
    "containerd/types.proto",
    "cri/runtime.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let definitions = protox::compile(DEFINITIONS, ["proto"])?;
    let mut config = Config::new();
    // One module per protobuf package, nested as the packages are.
    config.include_file("packages.rs");
    tonic_prost_build::configure()
        .build_server(false)
        .compile_fds_with_config(definitions, config)?;
    Ok(())
}
