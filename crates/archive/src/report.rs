//! The report of unpacking: what was left out, and what could not be restored.

use mainstay_paths::escape;

/// The number of entries reported by name.
const MAX_NAMED: usize = 16;

/// Differences between the archive and the unpacked files.
#[derive(Debug, Default)]
pub struct Report {
    named: Vec<String>,
    missing: u64,
    pub(crate) owners: u64,
    pub(crate) special_bits: u64,
    pub(crate) times: u64,
    pub(crate) xattrs: u64,
    xattr_example: Option<String>,
}

impl Report {
    /// Notes a member that was not unpacked.
    pub(crate) fn add_missing(&mut self, name: &[u8], why: &dyn std::fmt::Display) {
        self.missing += 1;
        if self.named.len() < MAX_NAMED {
            self.named.push(format!("{}: {why}", escape(name)));
        }
    }

    pub(crate) fn add_xattr(&mut self, name: &[u8], error: &dyn std::fmt::Display) {
        self.xattrs += 1;
        self.xattr_example
            .get_or_insert_with(|| format!("{}: {error}", escape(name)));
    }

    /// True if every member was unpacked.
    pub fn is_complete(&self) -> bool {
        self.missing == 0
    }

    /// Returns a line for each member that was not unpacked; one line for all beyond the first few.
    pub fn missing(&self) -> Vec<String> {
        let mut lines = self.named.clone();
        let more = self.missing - self.named.len() as u64;
        if more > 0 {
            lines.push(format!("and {more} more"));
        }
        lines
    }

    /// Returns what could not be restored of members that were unpacked, in one line.
    pub fn not_restored(&self) -> Option<String> {
        let mut parts = Vec::new();
        for (count, one, many) in [
            (self.owners, "owner", "owners"),
            (
                self.special_bits,
                "set-user-ID or set-group-ID bit",
                "set-user-ID and set-group-ID bits",
            ),
            (self.times, "modification time", "modification times"),
        ] {
            match count {
                0 => {}
                1 => parts.push(format!("1 {one}")),
                count => parts.push(format!("{count} {many}")),
            }
        }
        if let Some(example) = &self.xattr_example {
            let word = if self.xattrs == 1 {
                "attribute"
            } else {
                "attributes"
            };
            parts.push(format!("{} extended {word} ({example})", self.xattrs));
        }
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}
