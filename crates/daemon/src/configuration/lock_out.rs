//! Warnings of changes after which the caller could not reach the node any more.

use mainstay_node::own_addresses;

use crate::config::Config;
use crate::connection::Client;
use crate::requester::Requester;

pub(super) fn warnings(old: &Config, new: &Config, by: &Requester) -> Vec<String> {
    let mut warnings = Vec::new();
    let (before, after) = (&old.settings, &new.settings);
    if let Some(serial) = &by.serial
        && (after.identity.revoked.iter()).any(|revoked| *revoked.0 == **serial)
    {
        warnings.push(format!(
            "identity.revoked has your own certificate (serial {serial}); your next call is refused"
        ));
    }
    if matches!(by.client, Client::Forwarded(_)) && by.role > Some(after.forwarding.max_role.0) {
        warnings.push(format!(
            "forwarding.max_role = {:?} is less than your own role; your next forwarded call has \
             that role",
            after.forwarding.max_role.to_string()
        ));
    }
    if before.listen != after.listen {
        let (from, to) = (before.listen, after.listen);
        let ip = to.ip();
        warnings.push(if !ip.is_unspecified() && !own_addresses().contains(&ip) {
            format!(
                "listen = \"{to}\": this machine has no such address now; the next start fails \
                 without it"
            )
        } else if ip.is_loopback() && !from.ip().is_loopback() {
            format!("listen = \"{to}\": after the next start no other machine can connect")
        } else {
            format!("listen: after the next start clients must connect to {to} instead of {from}")
        });
    }
    if old.state != new.state {
        warnings.push(format!(
            "state = {:?}: after the next start the node has the identity and the data of that \
             directory; certificates of another CA are refused",
            new.state.display().to_string()
        ));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use mainstay_identity::Role;

    use super::*;
    use crate::config::{Overrides, Settings};

    fn config(text: &str) -> Config {
        let settings = Settings::parse(text).unwrap();
        Config::with_overrides(settings, None, &Overrides::default()).unwrap()
    }

    fn warned(text: &str) -> String {
        let by = Requester {
            client: Client::Forwarded("alice".into()),
            privileged: true,
            role: Some(Role::Admin),
            who: "test".into(),
            serial: Some("ab01".into()),
        };
        let before = config("listen = '0.0.0.0:50000'\nstate = '/s'");
        warnings(&before, &config(text), &by).join("\n")
    }

    #[test]
    fn what_locks_the_caller_out_is_named() {
        let rest = "state = '/s'\nlisten = ";
        for (text, word) in [
            (
                "'0.0.0.0:50000'\n[identity]\nrevoked = ['AB:01']",
                "serial ab01",
            ),
            (
                "'0.0.0.0:50000'\n[forwarding]\nmax_role = 'os:reader'",
                "os:reader",
            ),
            ("'0.0.0.0:50001'", "must connect to 0.0.0.0:50001"),
            ("'127.0.0.1:50000'", "no other machine"),
            ("'203.0.113.77:50000'", "no such address"),
        ] {
            let warned = warned(&format!("{rest}{text}"));
            assert!(warned.contains(word), "{text}: {warned}");
        }
        assert!(warned("listen = '0.0.0.0:50000'\nstate = '/t'").contains("\"/t\""));
        let harmless = format!("{rest}'0.0.0.0:50000'\n[identity]\nrevoked = ['ab02']");
        assert_eq!(warned(&harmless), "");
    }
}
