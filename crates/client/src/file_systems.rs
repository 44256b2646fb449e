//! The usage of file systems, computed as `df(1)` does.

use mainstay_api::machine::MountStat;

/// True if the node says only what nodes of earlier versions do.
fn lacks_details(stat: &MountStat) -> bool {
    stat.r#type.is_empty()
}

/// True if the mount is shown only on request: a pseudo file system, one without a size, or one that
/// is shown elsewhere.
pub fn is_hidden(stat: &MountStat) -> bool {
    stat.hidden || stat.size == 0
}

/// Returns the bytes in use. Those reserved for root are neither in use nor available.
pub fn used(stat: &MountStat) -> u64 {
    let free = if lacks_details(stat) {
        stat.available
    } else {
        stat.free
    };
    stat.size.saturating_sub(free)
}

/// Returns the inodes in use.
pub fn inodes_used(stat: &MountStat) -> u64 {
    stat.inodes.saturating_sub(stat.inodes_free)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reserved_is_not_in_use() {
        let stat = MountStat {
            size: 100,
            free: 40,
            available: 35,
            r#type: "ext4".to_owned(),
            ..MountStat::default()
        };
        assert_eq!(used(&stat), 60);
        let earlier = MountStat {
            r#type: String::new(),
            free: 0,
            ..stat
        };
        assert_eq!(used(&earlier), 65);
        assert!(!is_hidden(&earlier));
    }
}
