//! The caller of a forwarded call: a node asserts the name and role it forwards for.

use std::borrow::Cow;

use http::HeaderMap;
use mainstay_fanout::{FORWARDED_FOR, FORWARDED_ROLE};
use mainstay_identity::{Caller, Role};
use tonic::Status;

/// Names go into log lines.
const MAX_NAME_CHARS: usize = 128;

/// Returns the caller whose role counts. Only a node may forward, and it must name the caller.
pub(super) fn caller<'a>(
    connected: &'a Caller,
    headers: &HeaderMap,
) -> Result<Cow<'a, Caller>, Status> {
    let mut roles = headers.get_all(FORWARDED_ROLE).iter();
    let role = match (roles.next(), roles.next()) {
        (None, _) => return Ok(Cow::Borrowed(connected)),
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
    Ok(Cow::Owned(Caller {
        name,
        role: Some(role),
        is_node: false,
        via: connected.via.clone(),
    }))
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

    #[test]
    fn a_node_forwards_with_the_role_of_the_caller() {
        let node = connected(true);
        let caller = caller(&node, &asserting("os:operator")).unwrap();
        assert_eq!(caller.role, Some(Role::Operator));
        assert_eq!(caller.name, "alice");
        assert!(!caller.is_node);
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
