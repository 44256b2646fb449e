//! The caller of a forwarded call: a node asserts the name and role it forwards for.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use http::HeaderMap;
use mainstay_fanout::{FORWARDED_FOR, FORWARDED_ROLE, FORWARDED_SERIAL, Host};
use mainstay_identity::{Caller, Role, Via};
use tonic::Status;

use crate::config::Serial;

/// Names go into log lines.
const MAX_NAME_CHARS: usize = 128;

/// The highest roles that nodes may assert for the callers they forward for.
#[derive(Debug, Clone)]
pub struct AssertedRoles {
    default: Role,
    /// By the names and addresses of nodes, in lower case.
    peers: BTreeMap<String, Role>,
}

impl AssertedRoles {
    pub fn new(default: Role) -> Self {
        Self {
            default,
            peers: BTreeMap::new(),
        }
    }

    /// Limits the node whose certificate has this name or this host.
    pub fn limit(&mut self, name: &str, host: &Host, max_role: Role) {
        for name in [name.to_owned(), host.to_string()] {
            let limit = self.peers.entry(name.to_ascii_lowercase());
            let limit = limit.or_insert(max_role);
            *limit = max_role.min(*limit);
        }
    }

    /// Returns the lowest limit of all the names in the node's certificate.
    fn max_role(&self, node: &Caller) -> Role {
        let names: &[String] = match &node.via {
            Via::Certificate { names, .. } => names,
            _ => &[],
        };
        let names = names.iter().chain([&node.name]);
        let limits = names.filter_map(|name| self.peers.get(&name.to_ascii_lowercase()));
        limits.min().copied().unwrap_or(self.default)
    }
}

/// The caller whose role counts.
#[derive(Debug)]
pub(super) struct Identified<'a> {
    pub(super) caller: Cow<'a, Caller>,
    /// The role that the node asserted, if it may not assert as much.
    pub(super) reduced: Option<Role>,
}

/// Returns the caller whose role counts. Only a node may forward, and it must name the caller.
pub(super) fn caller<'a>(
    connected: &'a Caller,
    headers: &HeaderMap,
    asserted: &AssertedRoles,
    revoked: &BTreeSet<Serial>,
) -> Result<Identified<'a>, Status> {
    let mut roles = headers.get_all(FORWARDED_ROLE).iter();
    let role = match (roles.next(), roles.next()) {
        (None, _) => {
            return Ok(Identified {
                caller: Cow::Borrowed(connected),
                reduced: None,
            });
        }
        (Some(role), None) => role,
        (Some(_), Some(_)) => {
            return Err(Status::invalid_argument(format!(
                "`{FORWARDED_ROLE}` must have one value"
            )));
        }
    };
    if !connected.is_node {
        return Err(Status::permission_denied(format!(
            "not authorized: only a node may forward calls; leave `{FORWARDED_ROLE}` out"
        )));
    }
    let role: Role = role
        .to_str()
        .ok()
        .and_then(|role| role.parse().ok())
        .ok_or_else(|| Status::permission_denied("not authorized: the node forwards no role"))?;
    let name = headers
        .get(FORWARDED_FOR)
        .map_or(Cow::Borrowed("unnamed"), |name| {
            String::from_utf8_lossy(name.as_bytes())
        });
    let name: String = name
        .chars()
        .take(MAX_NAME_CHARS)
        .map(|c| if c.is_control() { '?' } else { c })
        .collect();
    check_serial(&name, headers, revoked)?;
    let max_role = asserted.max_role(connected);
    Ok(Identified {
        caller: Cow::Owned(Caller {
            name,
            role: Some(role.min(max_role)),
            is_node: false,
            via: connected.via.clone(),
        }),
        reduced: (role > max_role).then_some(role),
    })
}

/// Checks the certificate of the original caller: this node may know of its revocation before the
/// forwarding one does. Local users, and callers of older nodes, have no serial.
fn check_serial(name: &str, headers: &HeaderMap, revoked: &BTreeSet<Serial>) -> Result<(), Status> {
    for serial in headers.get_all(FORWARDED_SERIAL) {
        let serial: Serial = serial
            .to_str()
            .ok()
            .and_then(|serial| serial.parse().ok())
            .ok_or_else(|| {
                Status::invalid_argument(format!("`{FORWARDED_SERIAL}` is not a serial number"))
            })?;
        if revoked.contains(&serial) {
            return Err(Status::permission_denied(format!(
                "not authorized: the certificate of {name} (serial {serial}) has been revoked"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use mainstay_identity::Via;

    fn connected(is_node: bool) -> Caller {
        Caller {
            name: "n1".to_owned(),
            role: (!is_node).then_some(Role::Reader),
            is_node,
            via: Via::LocalUser { uid: 1 },
        }
    }

    fn asserting(role: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(FORWARDED_ROLE, HeaderValue::from_str(role).unwrap());
        headers.insert(FORWARDED_FOR, HeaderValue::from_static("alice"));
        headers
    }

    fn caller<'a>(connected: &'a Caller, headers: &HeaderMap) -> Result<Cow<'a, Caller>, Status> {
        let any = AssertedRoles::new(Role::Admin);
        let identified = super::caller(connected, headers, &any, &BTreeSet::new())?;
        assert_eq!(identified.reduced, None);
        Ok(identified.caller)
    }

    #[test]
    fn a_node_forwards_with_the_role_of_the_caller() {
        let node = connected(true);
        let caller = caller(&node, &asserting("os:operator")).unwrap();
        assert_eq!(caller.role, Some(Role::Operator));
        assert_eq!(caller.name, "alice");
        assert!(!caller.is_node);
    }

    #[test]
    fn a_node_asserts_no_more_than_the_lowest_limit_of_its_names() {
        let host = Host::Ip([10, 0, 0, 1].into());
        let mut asserted = AssertedRoles::new(Role::Operator);
        let role = |asserted: &AssertedRoles, name: &str, sans: &[&str]| {
            let node = Caller {
                name: name.to_owned(),
                via: Via::Certificate {
                    serial: String::new(),
                    fingerprint: String::new(),
                    not_after: jiff::Timestamp::MAX,
                    names: sans.iter().map(|&san| san.to_owned()).collect(),
                },
                ..connected(true)
            };
            let headers = asserting("os:admin");
            let identified = super::caller(&node, &headers, asserted, &BTreeSet::new()).unwrap();
            let role = identified.caller.role.unwrap();
            let reduced = (role < Role::Admin).then_some(Role::Admin);
            assert_eq!(identified.reduced, reduced);
            role
        };
        assert_eq!(role(&asserted, "n1", &[]), Role::Operator);
        asserted.limit("N1", &host, Role::Admin);
        assert_eq!(role(&asserted, "n1", &[]), Role::Admin);
        assert_eq!(role(&asserted, "other", &["10.0.0.1"]), Role::Admin);
        asserted.limit("n1b", &host, Role::Reader);
        assert_eq!(role(&asserted, "n1", &["10.0.0.1"]), Role::Reader);
        assert_eq!(role(&asserted, "other", &["n1b"]), Role::Reader);
        assert_eq!(role(&asserted, "other", &[]), Role::Operator);
    }

    #[test]
    fn a_revoked_caller_is_refused_whoever_forwards_for_it() {
        let any = AssertedRoles::new(Role::Admin);
        let revoked = BTreeSet::from(["AB:01".parse().unwrap()]);
        let node = connected(true);
        let mut headers = asserting("os:reader");
        for (serial, code) in [
            ("ab02", None),
            ("AB01", Some(tonic::Code::PermissionDenied)),
            ("no serial", Some(tonic::Code::InvalidArgument)),
        ] {
            headers.insert(FORWARDED_SERIAL, HeaderValue::from_str(serial).unwrap());
            let refused = super::caller(&node, &headers, &any, &revoked).err();
            assert_eq!(refused.map(|status| status.code()), code, "{serial}");
        }
    }

    #[test]
    fn only_a_node_may_forward() {
        for role in ["os:admin", "os:reader"] {
            let status = caller(&connected(false), &asserting(role)).unwrap_err();
            assert_eq!(status.code(), tonic::Code::PermissionDenied);
        }
    }

    #[test]
    fn an_unknown_role_is_refused() {
        for role in ["", "root", "os:node", "OS:ADMIN"] {
            let status = caller(&connected(true), &asserting(role)).unwrap_err();
            assert_eq!(status.code(), tonic::Code::PermissionDenied, "{role}");
        }
    }

    #[test]
    fn two_roles_are_refused() {
        let mut headers = asserting("os:reader");
        headers.append(FORWARDED_ROLE, HeaderValue::from_static("os:admin"));
        assert!(caller(&connected(true), &headers).is_err());
    }
}
