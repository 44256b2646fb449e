//! What an executable runs as, as options of `cell start` and `run`.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use clap::Args;
use mainstay_api::runtime::Executable;

use crate::failure::{Failure, Outcome};

#[derive(Debug, Default, Args)]
#[command(next_help_heading = "The executable")]
pub struct Options {
    /// The user to run as, by number [default: root]
    #[arg(long, value_name = "NUMBER")]
    uid: Option<u32>,

    /// The group to run as, by number [default: root's]
    #[arg(long, value_name = "NUMBER")]
    gid: Option<u32>,

    /// A variable of its environment; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    env: Vec<String>,

    /// Where it begins, as seen inside the cell [default: /]
    #[arg(long, value_name = "DIR", value_parser = directory)]
    workdir: Option<String>,

    /// Capabilities it keeps beyond the usual ones: NET_ADMIN, SYS_TIME, ... or ALL
    #[arg(long, value_name = "CAP", value_delimiter = ',', value_parser = capability)]
    cap_keep: Vec<String>,

    /// Let programs it executes gain privileges, as by a set-user-ID bit
    #[arg(long)]
    allow_new_privileges: bool,

    /// Which system calls it may make: `default`, or a file with a profile in the OCI's JSON
    #[arg(long, value_name = "PROFILE")]
    seccomp: Option<String>,

    /// What it is for, in your words
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
}

impl Options {
    /// `words` run in `cell` under `name`.
    pub fn executable(self, cell: &str, name: &str, words: &[String]) -> Outcome<Executable> {
        let command = shlex::try_join(words.iter().map(String::as_str))
            .map_err(|_| Failure::usage("the command has a zero byte in it"))?;
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

/// The kernel's name, however it is written.
fn capability(text: &str) -> Result<String, String> {
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("CAP_").unwrap_or(&upper);
    if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        return Err("write the name of a capability, such as NET_ADMIN, or ALL".to_owned());
    }
    Ok(match name {
        "ALL" => name.to_owned(),
        name => format!("CAP_{name}"),
    })
}

fn profile(named: &str) -> Outcome<String> {
    // Far more than any profile has.
    const MOST_BYTES: u64 = 1 << 20;
    if named == "default" {
        return Ok(named.to_owned());
    }
    let path = Path::new(named);
    let wrong = |why: &dyn std::fmt::Display| {
        Failure::usage(format!(
            "{} is no seccomp profile: {why}; write default, or name a file in the OCI's JSON",
            path.display()
        ))
    };
    let mut text = String::new();
    let file = File::open(path).map_err(|error| wrong(&error))?;
    file.take(MOST_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(|error| wrong(&error))?;
    if text.len() as u64 > MOST_BYTES {
        return Err(wrong(&"it has more than 1 MiB"));
    }
    match serde_json::from_str(&text) {
        Ok(serde_json::Value::Object(_)) => Ok(text),
        Ok(_) => Err(wrong(&"it is no JSON object")),
        Err(error) => Err(wrong(&error)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn command(words: &[&str]) -> String {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        let options = Options::default();
        options.executable("c", "e", &words).unwrap().command
    }

    #[test]
    fn words_are_quoted_only_where_a_shell_would_need_it() {
        assert_eq!(command(&["sleep", "10"]), "sleep 10");
        assert_eq!(
            command(&["sh", "-c", "echo hi; exit 7"]),
            "sh -c 'echo hi; exit 7'"
        );
    }

    proptest! {
        #[test]
        fn words_come_out_as_they_went_in(words in prop::collection::vec("[^\0]{0,20}", 1..5)) {
            let executable = Options::default().executable("c", "e", &words).unwrap();
            prop_assert_eq!(shlex::split(&executable.command), Some(words));
        }
    }

    #[test]
    fn capabilities_have_the_kernel_s_names() {
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
    fn a_profile_is_default_or_a_file_of_json() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let text = r#"{"defaultAction": "SCMP_ACT_ALLOW"}"#;
        assert_eq!(profile("default").unwrap(), "default");
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
