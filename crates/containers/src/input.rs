//! Validation of ids and namespaces before any runtime is called.

use crate::error::ContainerError;

/// The longest namespace containerd accepts.
const MAX_NAMESPACE_BYTES: usize = 76;
/// More than the longest id of a container in a pod: names of 63, 253 and 63 bytes.
const MAX_ID_BYTES: usize = 512;

/// Checks a namespace by containerd's rule: words of letters and digits, joined by single `.`, `_`
/// or `-`.
pub(crate) fn check_namespace(namespace: &str) -> Result<(), ContainerError> {
    let words = |text: &str| {
        text.split(['.', '_', '-'])
            .all(|word| !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric()))
    };
    if namespace.len() <= MAX_NAMESPACE_BYTES && words(namespace) {
        Ok(())
    } else {
        Err(ContainerError::InvalidNamespace {
            namespace: shown(namespace),
        })
    }
}

pub(crate) fn check_id(id: &str) -> Result<(), ContainerError> {
    if id.is_empty() {
        return Err(ContainerError::NoId);
    }
    if id.len() > MAX_ID_BYTES || id.chars().any(char::is_control) {
        return Err(ContainerError::InvalidId { id: shown(id) });
    }
    Ok(())
}

/// Shortens input for an error message.
fn shown(text: &str) -> String {
    const MAX_CHARS: usize = 80;
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_follow_the_rule_of_containerd() {
        for good in [
            "default",
            "k8s.io",
            "moby",
            "a-b_c.d",
            "X9",
            &"n".repeat(76),
        ] {
            assert!(check_namespace(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            ".",
            "-a",
            "a..b",
            "a b",
            "a/b",
            "ä",
            "a\n",
            "a\0b",
            &"n".repeat(77),
        ] {
            assert!(check_namespace(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn an_error_quotes_only_the_beginning_of_long_input() {
        let error = check_id(&"x\u{7}".repeat(1_000_000))
            .unwrap_err()
            .to_string();
        assert!(error.len() < 1000 && !error.contains('\u{7}'), "{error}");
        assert!(check_id("kube-system/dns-0:coredns").is_ok());
        assert!(check_id(&"x".repeat(513)).is_err());
    }
}
