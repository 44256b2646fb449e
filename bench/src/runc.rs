//! runc on a bundle of our own: the output of `runc spec`, with another program.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use mainstay_testkit::{Sweeper, images};
use serde_json::{Value, json};

#[derive(Debug)]
pub struct Runc {
    sweeper: Sweeper,
}

impl Runc {
    /// Prepares to run `program`.
    pub fn prepare(program: &str) -> Result<Self> {
        let runc = Self {
            sweeper: Sweeper::start("runc"),
        };
        let bundle = runc.path("bundle");
        images::make_rootfs(&bundle.join("rootfs"));
        let made = Command::new("runc")
            .arg("spec")
            .current_dir(&bundle)
            .stdin(Stdio::null())
            .status()
            .context("cannot run runc; scripts/setup-bench installs it")?;
        ensure!(made.success(), "runc spec: {made}");
        let path = bundle.join("config.json");
        let mut spec: Value = serde_json::from_slice(&std::fs::read(&path)?)?;
        spec["process"]["terminal"] = json!(false);
        spec["process"]["args"] = json!([program]);
        spec["linux"]["cgroupsPath"] = json!(format!("/{}/one", runc.sweeper.cgroup()));
        std::fs::write(&path, spec.to_string())?;
        Ok(runc)
    }

    /// A command that runs a container from its creation to its removal.
    pub fn run(&self, id: &str) -> Command {
        let mut command = Command::new("runc");
        command
            .arg("--root")
            .arg(self.path("root"))
            .args(["run", "--bundle"])
            .arg(self.path("bundle"))
            .arg(id);
        command
    }

    fn path(&self, name: &str) -> PathBuf {
        self.sweeper.dir().join(name)
    }
}
