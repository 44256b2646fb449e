//! The difference between two texts of a configuration file, without secrets.

use std::path::Path;
use std::time::Duration;

use similar::TextDiff;

use crate::config::redacted_texts;

/// Lines around a change.
const CONTEXT_LINES: usize = 3;
/// Afterwards the difference is still correct, but no longer the shortest.
const TIMEOUT: Duration = Duration::from_millis(500);

/// Returns a unified diff; empty if nothing changes.
pub(super) fn difference(path: &Path, before: &[u8], after: &str) -> String {
    if before == after.as_bytes() {
        return String::new();
    }
    let before = String::from_utf8_lossy(before);
    let (Some(before), Some(after)) = redacted_texts(&before, after) else {
        return "the text in force is no valid TOML and is not shown, as it may have secrets\n"
            .to_owned();
    };
    let diff = TextDiff::configure()
        .timeout(TIMEOUT)
        .diff_lines(&before, &after);
    let path = path.display().to_string();
    diff.unified_diff()
        .context_radius(CONTEXT_LINES)
        .header(&path, &format!("{path} (new)"))
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_shown_as_a_unified_diff_without_secrets() {
        let before = "a = 1\nb = 2\ntoken = 'old'\n";
        let after = "a = 1\nb = 3\ntoken = 'new'\n";
        let shown = difference(Path::new("/c"), before.as_bytes(), after);
        assert_eq!(
            shown,
            "--- /c\n+++ /c (new)\n@@ -1,3 +1,3 @@\n a = 1\n-b = 2\n-token = \"(redacted)\"\n\
             +b = 3\n+token = \"(redacted, changed)\"\n"
        );
        assert_eq!(difference(Path::new("/c"), b"x", "x"), "");
        let broken = difference(Path::new("/c"), b"token = hunter2", "");
        assert!(!broken.contains("hunter2"), "{broken}");
    }
}
