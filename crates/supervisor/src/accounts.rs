//! Users and groups of the machine, from `/etc/passwd` and `/etc/group`.
//!
//! Read directly: a static binary has no name service switch.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const PASSWD: &str = "/etc/passwd";
const GROUP: &str = "/etc/group";

/// The identity of a service's process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Account {
    pub uid: u32,
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Of a user in `/etc/passwd`.
    pub name: Option<String>,
    pub home: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    #[error("user {user:?} not found in {PASSWD}")]
    NoUser { user: String },
    #[error("group {group:?} not found in {GROUP}")]
    NoGroup { group: String },
    #[error("cannot read {}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
}

/// Finds a user and a group, each by name or number. The group defaults to the user's own.
pub fn find(user: Option<&str>, group: Option<&str>) -> Result<Account, AccountError> {
    if user.is_none() && group.is_none() {
        return Ok(Account::default());
    }
    let passwd = read(PASSWD)?;
    let groups = read(GROUP)?;
    resolve(user, group, &passwd, &groups)
}

fn resolve(
    user: Option<&str>,
    group: Option<&str>,
    passwd: &str,
    groups: &str,
) -> Result<Account, AccountError> {
    let mut account = match user {
        None => Account::default(),
        Some(user) => find_user(user, passwd).ok_or_else(|| AccountError::NoUser {
            user: user.to_owned(),
        })?,
    };
    if let Some(name) = &account.name {
        account.groups = memberships(name, groups);
    }
    if let Some(group) = group {
        account.gid = find_group(group, groups).ok_or_else(|| AccountError::NoGroup {
            group: group.to_owned(),
        })?;
    }
    Ok(account)
}

fn read(path: &str) -> Result<String, AccountError> {
    match fs::read(path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        // A minimal system without either: numbers still work.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(source) => Err(AccountError::Unreadable {
            path: Path::new(path).to_owned(),
            source,
        }),
    }
}

/// A user by name, or by number with or without an entry.
fn find_user(user: &str, passwd: &str) -> Option<Account> {
    let number = user.parse::<u32>().ok().filter(|uid| *uid != u32::MAX);
    let entry = passwd.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, uid, gid, _, home, ..] = fields.as_slice() else {
            return None;
        };
        let (uid, gid) = (uid.parse().ok()?, gid.parse().ok()?);
        (*name == user || number == Some(uid)).then(|| Account {
            uid,
            gid,
            groups: Vec::new(),
            name: Some((*name).to_owned()),
            home: Some((*home).to_owned()).filter(|home| !home.is_empty()),
        })
    });
    entry.or_else(|| {
        number.map(|uid| Account {
            uid,
            gid: uid,
            ..Account::default()
        })
    })
}

fn find_group(group: &str, groups: &str) -> Option<u32> {
    let named = groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        let gid = fields.nth(1)?.parse().ok()?;
        (name == group).then_some(gid)
    });
    let number = || group.parse().ok().filter(|gid| *gid != u32::MAX);
    named.or_else(number)
}

/// The groups that list a user as a member.
fn memberships(user: &str, groups: &str) -> Vec<u32> {
    let found = groups.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [_, _, gid, members, ..] = fields.as_slice() else {
            return None;
        };
        let is_member = members.split(',').any(|member| member == user);
        is_member.then(|| gid.parse().ok()).flatten()
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str =
        "root:x:0:0:root:/root:/bin/sh\nbroken\nweb:x:33:34:Web:/var/www:/bin/no\n";
    const GROUP: &str = "root:x:0:\nwww:x:34:\nlog:x:4:syslog,web\ndisk:x:6:web\n::\n";

    #[test]
    fn users_and_groups_are_found_by_name_and_number() {
        let web = resolve(Some("web"), None, PASSWD, GROUP).unwrap();
        assert_eq!((web.uid, web.gid), (33, 34));
        assert_eq!(web.groups, [4, 6]);
        assert_eq!(web.home.as_deref(), Some("/var/www"));
        assert_eq!(resolve(Some("33"), None, PASSWD, GROUP).unwrap(), web);
        let log = resolve(Some("web"), Some("log"), PASSWD, GROUP).unwrap();
        assert_eq!((log.uid, log.gid), (33, 4));
        let unknown = resolve(Some("1234"), None, PASSWD, GROUP).unwrap();
        assert_eq!((unknown.uid, unknown.gid, unknown.name), (1234, 1234, None));
        for (user, group) in [("nobody", None), ("-1", None), ("web", Some("none"))] {
            let error = resolve(Some(user), group, PASSWD, GROUP).unwrap_err();
            assert!(error.to_string().contains("not found"), "{error}");
        }
    }
}
