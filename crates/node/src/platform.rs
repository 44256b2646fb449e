//! The platform of this machine: bare metal, a cloud, or a container.

use std::fmt;
use std::path::Path;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Metal,
    Cloud,
    Container,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Metal => "metal",
            Self::Cloud => "cloud",
            Self::Container => "container",
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Platform {
    pub name: String,
    pub mode: Mode,
}

/// Clouds by their DMI identification: file below `/sys/class/dmi/id`, prefix of its text, and name
/// of the platform.
const CLOUDS: &[(&str, &str, &str)] = &[
    ("sys_vendor", "Amazon EC2", "aws"),
    ("bios_vendor", "Amazon EC2", "aws"),
    ("product_name", "Google Compute Engine", "gcp"),
    // Hyper-V guests share Microsoft's vendor string; only Azure sets this asset tag.
    (
        "chassis_asset_tag",
        "7783-7084-3265-9085-8269-3286-77",
        "azure",
    ),
    ("sys_vendor", "DigitalOcean", "digitalocean"),
    ("sys_vendor", "Hetzner", "hetzner"),
    ("sys_vendor", "Vultr", "vultr"),
    ("sys_vendor", "Scaleway", "scaleway"),
    ("sys_vendor", "UpCloud", "upcloud"),
    ("sys_vendor", "Exoscale", "exoscale"),
    ("sys_vendor", "Alibaba Cloud", "alibaba"),
    ("chassis_asset_tag", "OracleCloud.com", "oracle"),
    ("sys_vendor", "OpenStack Foundation", "openstack"),
    ("product_name", "OpenStack", "openstack"),
];

/// Files that container runtimes create in the root directory.
const CONTAINER_MARKS: &[&str] = &[".dockerenv", "run/.containerenv", "run/systemd/container"];

impl Platform {
    /// Looks below `root`, which is `/` except in tests.
    pub fn detect(root: &Path) -> Self {
        if CONTAINER_MARKS.iter().any(|mark| root.join(mark).exists()) {
            return Self {
                name: "container".to_owned(),
                mode: Mode::Container,
            };
        }
        let dmi = root.join("sys/class/dmi/id");
        for (file, start, name) in CLOUDS {
            let text = std::fs::read_to_string(dmi.join(file)).unwrap_or_default();
            if text.starts_with(start) {
                return Self {
                    name: (*name).to_owned(),
                    mode: Mode::Cloud,
                };
            }
        }
        Self {
            name: "metal".to_owned(),
            mode: Mode::Metal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn a_machine_without_identification_is_bare_metal() {
        let root = machine(&[("sys/class/dmi/id/sys_vendor", "Dell Inc.\n")]);
        let platform = Platform::detect(root.path());
        assert_eq!(
            (platform.name.as_str(), platform.mode),
            ("metal", Mode::Metal)
        );
    }

    #[test]
    fn a_cloud_is_detected_by_its_firmware() {
        let root = machine(&[("sys/class/dmi/id/product_name", "Google Compute Engine\n")]);
        let platform = Platform::detect(root.path());
        assert_eq!(
            (platform.name.as_str(), platform.mode),
            ("gcp", Mode::Cloud)
        );
    }

    #[test]
    fn hyper_v_outside_azure_is_not_a_cloud() {
        let root = machine(&[
            ("sys/class/dmi/id/sys_vendor", "Microsoft Corporation\n"),
            ("sys/class/dmi/id/chassis_asset_tag", "none\n"),
        ]);
        assert_eq!(Platform::detect(root.path()).mode, Mode::Metal);
    }

    #[test]
    fn a_container_in_a_cloud_is_a_container() {
        let root = machine(&[
            (".dockerenv", ""),
            ("sys/class/dmi/id/sys_vendor", "Amazon EC2\n"),
        ]);
        assert_eq!(Platform::detect(root.path()).mode, Mode::Container);
    }
}
