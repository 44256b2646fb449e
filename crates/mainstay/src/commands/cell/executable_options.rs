//! Options and command of an executable, shared by `cell start` and `run`.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use clap::Args;
use mainstay_api::runtime::Executable;

use crate::failure::{Failure, Outcome};

#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Executable options")]
pub struct ExecutableOptions {
    /// Run as this UID [default: 0]
    #[arg(long, value_name = "UID")]
    uid: Option<u32>,

    /// Run as this GID [default: 0]
    #[arg(long, value_name = "GID")]
    gid: Option<u32>,

    /// Set an environment variable; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    env: Vec<String>,

    /// Working directory inside the cell [default: /]
    #[arg(long, value_name = "DIR", value_parser = directory)]
    workdir: Option<String>,

    /// Keep these capabilities beyond the default set: NET_ADMIN, SYS_TIME, ... or ALL
    #[arg(long, value_name = "CAP", value_delimiter = ',', value_parser = capability)]
    cap_keep: Vec<String>,

    /// Run without no_new_privs, so that set-user-ID programs gain privileges
    #[arg(long)]
    allow_new_privileges: bool,

    /// Seccomp profile: `default`, `unconfined`, or a file in OCI JSON format [default: default]
    #[arg(long, value_name = "PROFILE")]
    seccomp: Option<String>,

    /// Free text, shown by cell list -o json
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,

    /// Program and its arguments, executed without a shell
    #[arg(
        last = true,
        required = true,
        value_name = "COMMAND",
        help_heading = "Arguments"
    )]
    command: Vec<String>,
}

impl ExecutableOptions {
    /// Returns the program of the command.
    pub fn program(&self) -> Option<&str> {
        self.command.first().map(String::as_str)
    }

    /// Returns the executable `name` in `cell`.
    pub fn executable(self, cell: &str, name: &str) -> Outcome<Executable> {
        let command = shlex::try_join(self.command.iter().map(String::as_str))
            .map_err(|_| Failure::usage("the command contains a NUL byte"))?;
        Ok(Executable {
            name: name.to_owned(),
            command,
            description: self.description.unwrap_or_default(),
            cell_name: cell.to_owned(),
            uid: self.uid,
            gid: self.gid,
            environment: self.env,
            working_directory: self.workdir.unwrap_or_default(),
            keep_capabilities: self.cap_keep,
            allow_new_privileges: self.allow_new_privileges,
            seccomp: self.seccomp.as_deref().map_or(Ok(String::new()), profile)?,
            ..Executable::default()
        })
    }
}

fn variable(text: &str) -> Result<String, String> {
    match text.split_once('=') {
        Some((name, _)) if !name.is_empty() => Ok(text.to_owned()),
        _ => Err("write NAME=VALUE".to_owned()),
    }
}

fn directory(text: &str) -> Result<String, String> {
    match text.starts_with('/') {
        true => Ok(text.to_owned()),
        false => Err("write an absolute path".to_owned()),
    }
}

/// Parses a capability, with or without `CAP_`, in any case.
fn capability(text: &str) -> Result<String, String> {
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("CAP_").unwrap_or(&upper);
    if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        return Err("write the name of a capability (NET_ADMIN) or ALL".to_owned());
    }
    Ok(match name {
        "ALL" => name.to_owned(),
        name => format!("CAP_{name}"),
    })
}

fn profile(named: &str) -> Outcome<String> {
    const MAX_PROFILE_BYTES: u64 = 1 << 20;
    if matches!(named, "default" | "unconfined") {
        return Ok(named.to_owned());
    }
    let path = Path::new(named);
    let invalid = |reason: &dyn std::fmt::Display| {
        Failure::usage(format!(
            "cannot read seccomp profile {}: {reason}; write default or unconfined, or name a file in OCI JSON format",
            path.display()
        ))
    };
    let mut text = String::new();
    let file = File::open(path).map_err(|error| invalid(&error))?;
    file.take(MAX_PROFILE_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(|error| invalid(&error))?;
    if text.len() as u64 > MAX_PROFILE_BYTES {
        return Err(invalid(&"larger than 1 MiB"));
    }
    match serde_json::from_str(&text) {
        Ok(serde_json::Value::Object(_)) => Ok(text),
        Ok(_) => Err(invalid(&"not a JSON object")),
        Err(error) => Err(invalid(&error)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn command(words: &[&str]) -> String {
        let options = ExecutableOptions {
            command: words.iter().map(|&word| word.to_owned()).collect(),
            ..ExecutableOptions::default()
        };
        options.executable("c", "e").unwrap().command
    }

    #[test]
    fn arguments_are_quoted_only_where_a_shell_needs_it() {
        assert_eq!(command(&["sleep", "10"]), "sleep 10");
        assert_eq!(
            command(&["sh", "-c", "echo hi; exit 7"]),
            "sh -c 'echo hi; exit 7'"
        );
    }

    proptest! {
        #[test]
        fn arguments_survive_quoting(words in prop::collection::vec("[^\0]{0,20}", 1..5)) {
            let options = ExecutableOptions { command: words.clone(), ..ExecutableOptions::default() };
            let executable = options.executable("c", "e").unwrap();
            prop_assert_eq!(shlex::split(&executable.command), Some(words));
        }
    }

    #[test]
    fn capabilities_have_the_kernel_names() {
        for (text, name) in [
            ("net_admin", "CAP_NET_ADMIN"),
            ("CAP_SYS_TIME", "CAP_SYS_TIME"),
            ("all", "ALL"),
        ] {
            assert_eq!(capability(text).as_deref(), Ok(name));
        }
        for text in ["", "CAP_", "net admin", "+ep"] {
            assert!(capability(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_seccomp_profile_is_default_or_a_json_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let text = r#"{"defaultAction": "SCMP_ACT_ALLOW"}"#;
        for known in ["default", "unconfined"] {
            assert_eq!(profile(known).unwrap(), known);
        }
        assert_eq!(profile(&file("good", text)).unwrap(), text);
        for bad in [
            file("list", "[]"),
            file("torn", "{"),
            file("huge", &format!("\"{}\"", "x".repeat(1 << 20))),
            dir.path().join("missing").display().to_string(),
            dir.path().display().to_string(),
        ] {
            let failure = profile(&bad).unwrap_err();
            assert!(failure.message.contains(&bad), "{}", failure.message);
            assert!(failure.message.len() < 1000);
        }
    }
}
