//! From what an executable is asked to be to what the kernel is told to execute.

use super::error::CellError;
use crate::capabilities::Capabilities;
use crate::shim::protocol::{Program, UserRange};
use crate::spec::{CellSpec, ExecutableSpec, Namespace};

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

pub(super) fn program(
    cell: &CellSpec,
    hostname: &str,
    spec: &ExecutableSpec,
    users: UserRange,
) -> Result<Program, CellError> {
    let asked = Capabilities::parse(spec.keep_capabilities.iter().map(String::as_str))?;
    let uid = spec.uid.unwrap_or(0);
    let environment = environment(hostname, uid, &spec.environment);
    Ok(Program {
        paths: paths(spec.words.first().map_or("", String::as_str), &environment),
        words: spec.words.clone(),
        environment,
        working_directory: spec
            .working_directory
            .clone()
            .unwrap_or_else(|| "/".to_owned()),
        uid,
        gid: spec.gid.unwrap_or(uid),
        capabilities: asked.grant()?,
        new_privileges: spec.allow_new_privileges,
        filter: spec.seccomp.filter()?,
        own_cgroups: !cell.share.contains(&Namespace::Cgroup),
        users: cell.user_namespace.then_some(users),
    })
}

/// The few variables that programs rely on, and those asked for, which come before.
fn environment(hostname: &str, uid: u32, asked: &[String]) -> Vec<String> {
    let home = if uid == 0 { "/root" } else { "/" };
    let usual = [("PATH", PATH), ("HOME", home), ("HOSTNAME", hostname)];
    let name = |variable: &'_ str| variable.split('=').next().unwrap_or_default().to_owned();
    let usual = usual
        .into_iter()
        .filter(|(usual, _)| !asked.iter().any(|variable| name(variable) == *usual))
        .map(|(name, value)| format!("{name}={value}"));
    usual.chain(asked.iter().cloned()).collect()
}

/// Where a program may be: at its path, or by its name in one of the usual places.
fn paths(word: &str, environment: &[String]) -> Vec<String> {
    if word.contains('/') {
        return vec![word.to_owned()];
    }
    let path = environment
        .iter()
        .find_map(|variable| variable.strip_prefix("PATH="))
        .unwrap_or_default();
    // An empty part means the working directory for a shell; here nobody means that.
    let directories = path.split(':').filter(|directory| !directory.is_empty());
    directories
        .map(|directory| format!("{directory}/{word}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(words: &[&str], environment: &[&str]) -> Program {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let spec = ExecutableSpec {
            words: owned(words),
            environment: owned(environment),
            ..ExecutableSpec::default()
        };
        let users = UserRange { first: 1, count: 1 };
        program(&CellSpec::default(), "here", &spec, users).unwrap()
    }

    #[test]
    fn a_name_is_looked_for_in_the_path_it_is_given() {
        let program = made(&["true"], &["PATH=/a::/b", "X=1"]);
        assert_eq!(program.paths, ["/a/true", "/b/true"]);
        assert_eq!(
            program.environment,
            ["HOME=/root", "HOSTNAME=here", "PATH=/a::/b", "X=1"]
        );
        assert_eq!(made(&["./x/true"], &[]).paths, ["./x/true"]);
        assert!(made(&["true"], &[]).paths.contains(&"/bin/true".to_owned()));
    }
}
