use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::path::PathBuf;

use std::sync::LazyLock;

use aws_lc_rs::encoding::{AsDer as _, PublicKeyX509Der};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::Stamp;

/// A private key and its public key, in PEM.
static KEYS: LazyLock<[(String, String); 2]> = LazyLock::new(|| [key_pair(), key_pair()]);

fn key_pair() -> (String, String) {
    let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).unwrap();
    let public: PublicKeyX509Der<'_> = pair.public_key().as_der().unwrap();
    let pem = |kind: &str, der: &[u8]| {
        let text = STANDARD.encode(der);
        format!("-----BEGIN {kind}-----\n{text}\n-----END {kind}-----\n")
    };
    (
        pem("PRIVATE KEY", pair.to_pkcs8v1().unwrap().as_ref()),
        pem("PUBLIC KEY", public.as_ref()),
    )
}

static STAMP: Stamp = Stamp::new("9.8.7", "feedfacecafe", 1);

/// The bytes of an executable of `machine` with a build stamp.
fn binary(machine: u8) -> Vec<u8> {
    let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
    bytes.resize(16, 0);
    bytes.extend_from_slice(&[3, 0, machine, 0]);
    bytes.resize(100_000, 7);
    bytes.extend_from_slice(STAMP.bytes());
    bytes
}

fn own_machine() -> u8 {
    match elf::own_architecture() {
        "arm64" => 183,
        _ => 62,
    }
}

struct Written {
    dir: TempDir,
    archive: Vec<u8>,
}

fn image(with: impl FnOnce(ImageWriter<'_>) -> ImageWriter<'_>) -> Written {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("binary");
    fs::write(&path, binary(own_machine())).unwrap();
    let mut archive = Vec::new();
    let writer = with(ImageWriter::of(&path).unwrap());
    writer.write(&mut archive, dir.path()).unwrap();
    Written { dir, archive }
}

fn signed() -> Written {
    let key = Box::leak(Box::new(SigningKey::from_pem(&KEYS[0].0).unwrap()));
    image(|writer| writer.signed_by(key))
}

impl Written {
    fn path(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    /// Opens, verifies with `keys` and extracts.
    fn read(&self, keys: &[VerifyingKey]) -> Result<Binary, ImageError> {
        fs::write(self.path(), &self.archive).unwrap();
        self.read_path(keys)
    }

    fn read_path(&self, keys: &[VerifyingKey]) -> Result<Binary, ImageError> {
        let image = Image::open(&self.path(), self.dir.path())?;
        image.verify_signature(keys)?;
        let path = self.dir.path().join("extracted");
        let mut options = File::options();
        options.create(true).truncate(true).read(true).write(true);
        let mut file = options.open(&path).unwrap();
        image.extract(&mut file, &path)
    }

    /// Unpacks the archive as a layout directory in the place of the image.
    fn as_directory(&self) -> PathBuf {
        let path = self.path();
        tar::Archive::new(&self.archive[..]).unpack(&path).unwrap();
        path
    }

    fn refused(&self, keys: &[VerifyingKey]) -> String {
        let error = self.read(keys).unwrap_err();
        mainstay_error_chain::chain(&error)
    }
}

fn key() -> VerifyingKey {
    VerifyingKey::from_pem(&KEYS[0].1).unwrap()
}

#[test]
fn an_image_returns_its_binary_in_every_form() {
    let expected = binary(own_machine());
    for compressed in [true, false] {
        let written = image(|writer| match compressed {
            true => writer,
            false => writer.uncompressed(),
        });
        let check = |found: Binary| {
            assert_eq!(found.digest, Digest::of(&expected));
            assert_eq!(found.facts.version, "9.8.7");
            assert_eq!(
                fs::read(written.dir.path().join("extracted")).unwrap(),
                expected
            );
        };
        check(written.read(&[]).unwrap());
        fs::remove_file(written.path()).unwrap();
        written.as_directory();
        check(written.read_path(&[]).unwrap());
        fs::remove_dir_all(written.path()).unwrap();
        let mut gzip = GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&written.archive).unwrap();
        fs::write(written.path(), gzip.finish().unwrap()).unwrap();
        check(written.read_path(&[]).unwrap());
    }
}

#[test]
fn the_same_inputs_give_the_same_image() {
    assert_eq!(image(|it| it).archive, image(|it| it).archive);
}

#[test]
fn a_signature_is_needed_if_keys_are_configured() {
    let other = VerifyingKey::from_pem(&KEYS[1].1).unwrap();
    let unsigned = image(|it| it);
    unsigned.read(&[]).unwrap();
    let error = unsigned.refused(&[key()]);
    assert!(
        error.contains("not signed by a key in upgrade.keys: it has no signature"),
        "{error}"
    );

    let signed = signed();
    signed.read(&[key()]).unwrap();
    signed.read(&[other.clone(), key()]).unwrap();
    let error = signed.refused(&[other]);
    assert!(error.contains("its signature does not verify"), "{error}");
}

/// The signature of another image, under the name of this one's.
#[test]
fn a_signature_of_another_manifest_is_refused() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("binary");
    fs::write(&path, binary(own_machine())).unwrap();
    let signing = SigningKey::from_pem(&KEYS[0].0).unwrap();
    let writer = ImageWriter::of(&path).unwrap();
    let (payload, signature) = signing.sign(Digest::of(b"another")).unwrap();
    assert!(!key().verifies(
        &payload,
        &signature,
        writer.write(Vec::new(), dir.path()).unwrap()
    ));
    assert!(key().verifies(&payload, &signature, Digest::of(b"another")));
    assert!(!key().verifies(&payload, "no base64!", Digest::of(b"another")));
}

#[test]
fn every_truncation_is_refused() {
    let written = image(|it| it);
    let length = written.archive.len();
    for keep in (0..length - 1024).step_by(997) {
        let cut = Written {
            dir: TempDir::new().unwrap(),
            archive: written.archive[..keep].to_vec(),
        };
        assert!(cut.read(&[]).is_err(), "{keep} of {length}");
    }
}

#[test]
fn an_image_for_another_architecture_is_refused() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("binary");
    let other = if own_machine() == 62 { 183 } else { 62 };
    fs::write(&path, binary(other)).unwrap();
    let mut archive = Vec::new();
    let writer = ImageWriter::of(&path).unwrap();
    writer.write(&mut archive, dir.path()).unwrap();
    let error = Written { dir, archive }.refused(&[]);
    assert!(error.contains("is for linux/"), "{error}");
}

#[test]
fn files_that_are_no_mainstay_become_no_image() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("binary");
    for content in [&b"#!/bin/sh\n"[..], &binary(own_machine())[..50_000]] {
        fs::write(&path, content).unwrap();
        assert!(matches!(
            ImageWriter::of(&path),
            Err(WriteError::NotMainstay { .. })
        ));
    }
}

/// A change of a file of the layout, and a part of the error it must lead to.
type Damage = (fn(&Path), &'static str);

fn edit(path: &Path, change: impl FnOnce(&mut serde_json::Value)) {
    let mut value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    change(&mut value);
    fs::write(path, serde_json::to_vec(&value).unwrap()).unwrap();
}

fn manifest_path(layout: &Path) -> PathBuf {
    let index: serde_json::Value =
        serde_json::from_slice(&fs::read(layout.join("index.json")).unwrap()).unwrap();
    let digest = index["manifests"][0]["digest"].as_str().unwrap();
    layout
        .join("blobs/sha256")
        .join(digest.strip_prefix("sha256:").unwrap())
}

fn layer_path(layout: &Path) -> PathBuf {
    let manifest: serde_json::Value =
        serde_json::from_slice(&fs::read(manifest_path(layout)).unwrap()).unwrap();
    let digest = manifest["layers"][0]["digest"].as_str().unwrap();
    layout
        .join("blobs/sha256")
        .join(digest.strip_prefix("sha256:").unwrap())
}

/// Replaces the manifest and corrects its descriptor, as an attacker without the key can.
fn forge(layout: &Path, change: impl FnOnce(&mut serde_json::Value)) {
    let old = manifest_path(layout);
    edit(&old, change);
    let bytes = fs::read(&old).unwrap();
    let digest = Digest::of(&bytes);
    fs::rename(&old, layout.join(oci::blob_name(&digest))).unwrap();
    edit(&layout.join("index.json"), |index| {
        index["manifests"][0]["digest"] = digest.to_string().into();
        index["manifests"][0]["size"] = bytes.len().into();
    });
}

#[test]
fn damaged_layouts_are_refused_with_the_reason() {
    let damages: &[Damage] = &[
        (
            |at| fs::remove_file(at.join("oci-layout")).unwrap(),
            "has no oci-layout",
        ),
        (
            |at| fs::remove_file(at.join("index.json")).unwrap(),
            "has no index.json",
        ),
        (
            |at| fs::write(at.join("index.json"), "{").unwrap(),
            "index.json of the upgrade image is not valid",
        ),
        (
            |at| fs::remove_file(manifest_path(at)).unwrap(),
            "has no blobs/sha256/",
        ),
        (
            |at| fs::remove_file(layer_path(at)).unwrap(),
            "has no blobs/sha256/",
        ),
        (
            |at| edit(&manifest_path(at), |it| it["schemaVersion"] = 3.into()),
            "the manifest of the upgrade image has digest",
        ),
        (
            |at| {
                let mut file = File::options().append(true).open(layer_path(at)).unwrap();
                file.write_all(b"more").unwrap();
            },
            "the layer of the upgrade image has",
        ),
        (
            |at| {
                let path = layer_path(at);
                let mut bytes = fs::read(&path).unwrap();
                let middle = bytes.len() / 2;
                bytes[middle] ^= 1;
                fs::write(path, bytes).unwrap();
            },
            "the layer of the upgrade image has digest",
        ),
        (
            |at| {
                let layer = layer_path(at);
                fs::rename(&layer, at.join("elsewhere")).unwrap();
                std::os::unix::fs::symlink("../../elsewhere", layer).unwrap();
            },
            "cannot read the upgrade image",
        ),
        (
            |at| {
                fs::rename(at.join("blobs"), at.join("moved")).unwrap();
                std::os::unix::fs::symlink("/tmp", at.join("blobs")).unwrap();
            },
            "cannot read the upgrade image",
        ),
        (
            |at| {
                edit(&at.join("index.json"), |it| {
                    it["manifests"] = serde_json::json!([])
                })
            },
            "has 0 manifests for linux/",
        ),
        (
            |at| {
                edit(&at.join("index.json"), |it| {
                    let first = it["manifests"][0].clone();
                    it["manifests"].as_array_mut().unwrap().push(first);
                });
            },
            "has 2 manifests for linux/",
        ),
        (
            |at| {
                edit(&at.join("index.json"), |it| {
                    it["manifests"][0]["digest"] = "sha256:../../../etc/passwd".into();
                });
            },
            "is not a digest of the form sha256:HEX",
        ),
        (
            |at| {
                edit(&at.join("index.json"), |it| {
                    it["manifests"][0]["size"] = u64::MAX.into()
                })
            },
            "the manifest of the upgrade image has",
        ),
        (
            |at| {
                edit(&at.join("index.json"), |it| {
                    it["manifests"][0]["platform"]["architecture"] = "s390x".into();
                });
            },
            "is for linux/s390x",
        ),
        (
            |at| {
                forge(at, |it| {
                    it["annotations"] = serde_json::json!({STATE_FORMAT: "none"})
                })
            },
            "has no valid annotation org.mainstay.state-format",
        ),
        (
            |at| forge(at, |it| it["annotations"][VERSION] = "9.9.9".into()),
            "claims version 9.9.9, its binary is 9.8.7",
        ),
        (
            |at| forge(at, |it| it["annotations"][STATE_FORMAT] = "0".into()),
            "claims state format 0, its binary is 1",
        ),
        (
            |at| forge(at, |it| it["annotations"][BINARY] = "usr/bin/other".into()),
            "has no regular file usr/bin/other",
        ),
        (
            |at| forge(at, |it| it["layers"] = serde_json::json!([])),
            "has 0 layers, not one",
        ),
        (
            |at| {
                forge(at, |it| {
                    it["layers"][0]["mediaType"] = "application/zstd".into()
                })
            },
            "media type \"application/zstd\"",
        ),
        (
            |at| {
                fs::remove_file(at.join("index.json")).unwrap();
                File::create(at.join("index.json"))
                    .unwrap()
                    .set_len(1 << 40)
                    .unwrap();
            },
            "index.json of the upgrade image exceeds",
        ),
        (
            |at| {
                fs::remove_file(at.join("index.json")).unwrap();
                let mode = rustix::fs::Mode::RWXU;
                let kind = rustix::fs::FileType::Fifo;
                rustix::fs::mknodat(rustix::fs::CWD, at.join("index.json"), kind, mode, 0).unwrap();
            },
            "has no index.json",
        ),
    ];
    for (damage, reason) in damages {
        let written = signed();
        damage(&written.as_directory());
        let error = written.read_path(&[]).unwrap_err();
        let error = mainstay_error_chain::chain(&error);
        assert!(error.contains(reason), "{error}; expected {reason}");
    }
}

/// The signature covers the manifest, so a forged one needs a signature of its own.
#[test]
fn a_forged_manifest_loses_its_signature() {
    let written = signed();
    let layout = written.as_directory();
    written.read_path(&[key()]).unwrap();
    forge(&layout, |it| {
        it["annotations"]["org.opencontainers.image.title"] = "forged".into()
    });
    written.read_path(&[]).unwrap();
    let error = written.read_path(&[key()]).unwrap_err();
    assert!(error.to_string().contains("it has no signature"), "{error}");
}

#[test]
fn labels_replace_annotations_that_a_tool_has_dropped() {
    let written = image(|it| it);
    let layout = written.as_directory();
    forge(&layout, |it| it["annotations"] = serde_json::json!({}));
    assert_eq!(written.read_path(&[]).unwrap().facts.version, "9.8.7");
}

#[test]
fn a_compression_bomb_ends_at_the_limit() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("image");
    let mut bomb = GzEncoder::new(File::create(&path).unwrap(), flate2::Compression::fast());
    // A tar entry of zeros that claims more than any archive may have.
    let mut header = tar::Header::new_ustar();
    header.set_size(1 << 40);
    header.set_path("index.json").unwrap();
    header.set_cksum();
    bomb.write_all(header.as_bytes()).unwrap();
    std::io::copy(&mut std::io::repeat(0).take(64 << 20), &mut bomb).unwrap();
    bomb.finish().unwrap();
    let error = Image::open(&path, dir.path()).unwrap_err();
    assert!(matches!(error, ImageError::Archive(_)), "{error:?}");
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "nothing is left in the scratch directory");
}

#[test]
fn an_archive_of_many_entries_or_of_one_name_twice_is_refused() {
    let archive = |names: &[String]| {
        let mut builder = tar::Builder::new(Vec::new());
        for name in names {
            let mut header = tar::Header::new_ustar();
            header.set_size(0);
            builder
                .append_data(&mut header, name, std::io::empty())
                .unwrap();
        }
        Written {
            dir: TempDir::new().unwrap(),
            archive: builder.into_inner().unwrap(),
        }
    };
    let many: Vec<String> = (0..5000).map(|number| format!("file{number}")).collect();
    let error = archive(&many).refused(&[]);
    assert!(error.contains("more than 4096 entries"), "{error}");
    let error = archive(&["index.json".to_owned(), "./index.json".to_owned()]).refused(&[]);
    assert!(error.contains("index.json twice"), "{error}");
}

#[test]
fn paths_that_are_no_image_are_refused() {
    let dir = TempDir::new().unwrap();
    let open = |path: &Path| Image::open(path, dir.path()).unwrap_err();
    assert!(matches!(
        open(&dir.path().join("none")),
        ImageError::NotFound { .. }
    ));
    assert!(matches!(
        open(Path::new("/dev/null")),
        ImageError::NeitherFileNorDirectory { .. }
    ));
    assert!(matches!(
        open(Path::new("/dev/zero")),
        ImageError::NeitherFileNorDirectory { .. }
    ));
    assert!(matches!(open(dir.path()), ImageError::Missing { .. }));
    let fifo = dir.path().join("fifo");
    let mode = rustix::fs::Mode::RWXU;
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    assert!(matches!(
        open(&fifo),
        ImageError::NeitherFileNorDirectory { .. }
    ));
}

#[test]
fn keys_of_other_kinds_are_refused() {
    assert!(VerifyingKey::from_pem("").is_err());
    assert!(VerifyingKey::from_pem(&KEYS[0].0).is_err());
    assert!(SigningKey::from_pem(&KEYS[0].1).is_err());
}

proptest! {
    /// Nothing but the original survives a change of one byte, or it is the same binary.
    #[test]
    fn a_changed_byte_never_changes_the_binary(at: prop::sample::Index, flip in 1..=255_u8) {
        let mut written = signed();
        let at = at.index(written.archive.len());
        written.archive[at] ^= flip;
        if let Ok(found) = written.read(&[key()]) {
            prop_assert_eq!(found.digest, Digest::of(&binary(own_machine())));
        }
    }

    #[test]
    fn no_bytes_crash_the_reader(bytes: Vec<u8>) {
        let written = Written { dir: TempDir::new().unwrap(), archive: bytes };
        prop_assert!(written.read(&[]).is_err());
    }
}
