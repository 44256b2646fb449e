//! containerd's configuration: everything below one directory, nothing that tests do not use.

use std::path::Path;

/// The lines after which containers can be run.
pub(super) const BOOTED: &[&str] = &["containerd successfully booted"];
/// The lines after which pods can be run too.
#[cfg(feature = "cri")]
pub(super) const BOOTED_WITH_CRI: &[&str] =
    &["containerd successfully booted", "Start streaming server"];

pub(super) fn without_cri(dir: &Path) -> String {
    config(dir, "\"io.containerd.grpc.v1.cri\",", "")
}

#[cfg(feature = "cri")]
pub(super) fn with_cri(dir: &Path) -> String {
    let sandbox_image = crate::images::PAUSE;
    let dir_text = dir.display();
    let plugin = format!(
        r#"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{sandbox_image}"
restrict_oom_score_adj = true
stream_server_address = "127.0.0.1"
stream_server_port = "0"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{dir_text}/cni/bin"
conf_dir = "{dir_text}/cni/conf"
"#
    );
    config(dir, "", &plugin)
}

fn config(dir: &Path, disabled: &str, plugins: &str) -> String {
    let dir = dir.display();
    format!(
        r#"
version = 2
root = "{dir}/root"
state = "{dir}/state"
disabled_plugins = [
  {disabled}
  "io.containerd.internal.v1.opt",
  "io.containerd.internal.v1.tracing",
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
  "io.containerd.tracing.processor.v1.otlp",
]
[grpc]
address = "{dir}/containerd.sock"
{plugins}"#
    )
}
