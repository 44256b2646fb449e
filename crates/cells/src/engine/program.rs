//! Resolution of an executable's specification to the program that its shim executes.

use super::error::CellError;
use crate::capabilities::Capabilities;
use crate::shim::protocol::{Program, UserRange};
use crate::spec::{CellSpec, ExecutableSpec, Namespace};

const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Resolves all defaults.
pub(super) fn resolve(
    cell: &CellSpec,
    hostname: &str,
    spec: &ExecutableSpec,
    users: UserRange,
) -> Result<Program, CellError> {
    let capabilities = Capabilities::parse(spec.keep_capabilities.iter().map(String::as_str))?;
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
        capabilities: capabilities.grant()?,
        new_privileges: spec.allow_new_privileges,
        filter: spec.seccomp.filter()?,
        builtin_filter: false,
        own_cgroups: !cell.share.contains(&Namespace::Cgroup),
        // Through the host's /proc, which comes with its mounts.
        sees_host_processes: [Namespace::Pid, Namespace::Mount]
            .iter()
            .any(|namespace| cell.share.contains(namespace)),
        users: cell.user_namespace.then_some(users),
        unconfined: false,
        groups: Vec::new(),
    })
}

/// Resolves the defaults of an executable that is not confined.
pub(super) fn resolve_unconfined(
    cell: &CellSpec,
    spec: &ExecutableSpec,
) -> Result<Program, CellError> {
    let uid = spec.uid.unwrap_or(0);
    let mut environment = spec.environment.clone();
    if !environment.iter().any(|one| one.starts_with("PATH=")) {
        environment.insert(0, format!("PATH={DEFAULT_PATH}"));
    }
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
        capabilities: Capabilities::NONE.grant()?,
        new_privileges: true,
        filter: None,
        builtin_filter: false,
        own_cgroups: !cell.share.contains(&Namespace::Cgroup),
        sees_host_processes: false,
        users: None,
        unconfined: true,
        groups: spec.groups.clone(),
    })
}

/// Joins the default variables that are not overridden with the requested ones.
fn environment(hostname: &str, uid: u32, requested: &[String]) -> Vec<String> {
    let home = if uid == 0 { "/root" } else { "/" };
    let defaults = [
        ("PATH", DEFAULT_PATH),
        ("HOME", home),
        ("HOSTNAME", hostname),
    ];
    let name = |variable: &'_ str| variable.split('=').next().unwrap_or_default().to_owned();
    let defaults = defaults
        .into_iter()
        .filter(|(default, _)| !requested.iter().any(|variable| name(variable) == *default))
        .map(|(name, value)| format!("{name}={value}"));
    defaults.chain(requested.iter().cloned()).collect()
}

/// The candidate paths of a program: its path, or its name in each directory of PATH.
fn paths(word: &str, environment: &[String]) -> Vec<String> {
    if word.contains('/') {
        return vec![word.to_owned()];
    }
    let path = environment
        .iter()
        .find_map(|variable| variable.strip_prefix("PATH="))
        .unwrap_or_default();
    // For a shell an empty entry means the working directory; here it is skipped.
    let directories = path.split(':').filter(|directory| !directory.is_empty());
    directories
        .map(|directory| format!("{directory}/{word}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(words: &[&str], environment: &[&str]) -> Program {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let spec = ExecutableSpec {
            words: owned(words),
            environment: owned(environment),
            ..ExecutableSpec::default()
        };
        let users = UserRange { first: 1, count: 1 };
        resolve(&CellSpec::default(), "here", &spec, users).unwrap()
    }

    #[test]
    fn a_program_name_is_searched_in_the_given_path() {
        let program = resolved(&["true"], &["PATH=/a::/b", "X=1"]);
        assert_eq!(program.paths, ["/a/true", "/b/true"]);
        assert_eq!(
            program.environment,
            ["HOME=/root", "HOSTNAME=here", "PATH=/a::/b", "X=1"]
        );
        assert_eq!(resolved(&["./x/true"], &[]).paths, ["./x/true"]);
        assert!(
            resolved(&["true"], &[])
                .paths
                .contains(&"/bin/true".to_owned())
        );
    }
}
