//! `mainstay upgrade-image`: makes and inspects the images that nodes are upgraded with.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use mainstay_client::format::Table;
use mainstay_slots::{Binary, Digest, Image, ImageWriter, SigningKey, VerifyingKey};
use serde_json::json;

use crate::cli::{Format, Global};
use crate::failure::{Exit, Failure, Outcome};
use crate::output;

/// Make and inspect upgrade images
#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:\n  \
    mainstay upgrade-image build mainstay-0.2.0.tar\n  \
    mainstay upgrade-image show mainstay-0.2.0.tar")]
pub enum UpgradeImage {
    Build(Build),
    Show(Show),
}

/// Make an upgrade image of a mainstay binary
///
/// The image is an OCI image in a tar archive. Containers can be started from it too.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay upgrade-image build mainstay-0.2.0.tar\n  \
    mainstay upgrade-image build --binary target/dist/mainstay mainstay-0.2.0.tar\n  \
    mainstay upgrade-image build --sign-key release.key mainstay-0.2.0.tar\n\n\
    A key pair: openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out release.key\n\
    and openssl pkey -in release.key -pubout -out release.pub; nodes with upgrade.keys accept\n\
    only images signed by one of them.")]
pub struct Build {
    /// Archive to write; - means stdout
    #[arg(value_name = "FILE")]
    image: PathBuf,

    /// Binary of the image [default: this one]
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,

    /// Sign with this ECDSA P-256 private key (PKCS#8 PEM)
    #[arg(long, value_name = "FILE")]
    sign_key: Option<PathBuf>,

    /// Time of creation in the image, RFC 3339 [default: none, the image is reproducible]
    #[arg(long, value_name = "TIME")]
    created: Option<jiff::Timestamp>,

    /// Leave the layer uncompressed
    #[arg(long)]
    no_gzip: bool,
}

/// Verify an upgrade image as a node does, and show its content
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay upgrade-image show mainstay-0.2.0.tar\n  \
    mainstay upgrade-image show --key release.pub mainstay-0.2.0.tar -o json")]
pub struct Show {
    /// Archive or layout directory
    #[arg(value_name = "IMAGE")]
    image: PathBuf,

    /// Require a signature by this public key (PEM); may be repeated
    #[arg(long = "key", value_name = "FILE")]
    keys: Vec<PathBuf>,
}

impl UpgradeImage {
    pub fn run(self, global: &Global) -> Outcome {
        match self {
            Self::Build(build) => build.run(global),
            Self::Show(show) => show.run(global),
        }
    }
}

impl Build {
    fn run(self, global: &Global) -> Outcome {
        let binary = self.binary.unwrap_or_else(|| "/proc/self/exe".into());
        let key = self.sign_key.as_deref().map(signing_key).transpose()?;
        let caused = |error| Failure::caused(Exit::Failed, &error);
        let mut writer = ImageWriter::of(&binary).map_err(caused)?;
        if let Some(key) = &key {
            writer = writer.signed_by(key);
        }
        if let Some(created) = self.created {
            writer = writer.created(created.to_string());
        }
        if self.no_gzip {
            writer = writer.uncompressed();
        }
        if self.image == Path::new("-") {
            let stdout = BufWriter::new(std::io::stdout().lock());
            writer
                .write(stdout, &std::env::temp_dir())
                .map_err(caused)?;
            return Ok(());
        }
        let version = writer.facts().version.clone();
        let architecture = writer.architecture();
        let parent = match self.image.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        // Renamed when complete: an interrupted build leaves no image that looks like one.
        let mut file = Unfinished::create(&self.image)?;
        let written = writer.write(BufWriter::new(&mut file.file), parent);
        let digest = written.map_err(caused)?;
        file.finish()?;
        print(
            global.output,
            &[
                ("image", self.image.display().to_string()),
                ("version", version),
                ("platform", format!("linux/{architecture}")),
                ("manifest", digest.to_string()),
                (
                    "signed",
                    if key.is_some() { "yes" } else { "no" }.to_owned(),
                ),
            ],
        )
    }
}

impl Show {
    fn run(self, global: &Global) -> Outcome {
        let keys = self.keys.iter().map(|path| verifying_key(path));
        let keys = keys.collect::<Outcome<Vec<_>>>()?;
        let (digest, binary) =
            read(&self.image, &keys).map_err(|error| Failure::caused(Exit::Failed, &error))?;
        let signature = match keys.len() {
            0 => "not checked",
            _ => "verified",
        };
        print(
            global.output,
            &[
                ("image", self.image.display().to_string()),
                ("version", binary.facts.version),
                ("sha", binary.facts.sha),
                (
                    "platform",
                    format!("linux/{}", mainstay_slots::own_architecture()),
                ),
                ("state format", binary.facts.state_format.to_string()),
                ("manifest", digest.to_string()),
                ("binary", binary.digest.to_string()),
                ("size", binary.size_bytes.to_string()),
                ("signature", signature.to_owned()),
            ],
        )
    }
}

/// Reads and verifies everything; the binary goes to a file without a name.
fn read(
    path: &Path,
    keys: &[VerifyingKey],
) -> Result<(Digest, Binary), mainstay_slots::ImageError> {
    let scratch = std::env::temp_dir();
    let image = Image::open(path, &scratch)?;
    image.verify_signature(keys)?;
    let binary = image.inspect(&scratch)?;
    Ok((image.digest(), binary))
}

fn print(format: Format, facts: &[(&str, String)]) -> Outcome {
    if format == Format::Table {
        let mut table = Table::new(&["FACT", "VALUE"]);
        for (name, value) in facts {
            table.row(vec![(*name).to_owned(), value.clone()]);
        }
        return output::print(&table.to_string());
    }
    let facts = facts
        .iter()
        .map(|(name, value)| (name.replace(' ', "_"), json!(value)));
    output::print_document(format, &serde_json::Value::Object(facts.collect()))
}

fn signing_key(path: &Path) -> Outcome<SigningKey> {
    let pem = std::fs::read_to_string(path).map_err(|error| Failure::file("read", path, &error))?;
    SigningKey::from_pem(&pem).map_err(|error| key_failure(path, &error))
}

fn verifying_key(path: &Path) -> Outcome<VerifyingKey> {
    let pem = std::fs::read_to_string(path).map_err(|error| Failure::file("read", path, &error))?;
    VerifyingKey::from_pem(&pem).map_err(|error| key_failure(path, &error))
}

fn key_failure(path: &Path, error: &mainstay_slots::KeyError) -> Failure {
    let why = mainstay_client::chain(error);
    Failure::new(
        Exit::Failed,
        format!("cannot use key {}: {why}", path.display()),
    )
}

/// A file that is removed unless it is finished.
struct Unfinished {
    file: File,
    temporary: PathBuf,
    target: PathBuf,
}

impl Unfinished {
    fn create(target: &Path) -> Outcome<Self> {
        let mut temporary = target.as_os_str().to_owned();
        temporary.push(".part");
        let temporary = PathBuf::from(temporary);
        let file = File::create(&temporary);
        Ok(Self {
            file: file.map_err(|error| Failure::file("write", &temporary, &error))?,
            temporary,
            target: target.to_owned(),
        })
    }

    fn finish(&mut self) -> Outcome {
        let finished = (self.file.flush())
            .and_then(|()| self.file.sync_all())
            .and_then(|()| std::fs::rename(&self.temporary, &self.target));
        finished.map_err(|error| Failure::file("write", &self.target, &error))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // Gone already if it was finished.
        let _ = std::fs::remove_file(&self.temporary);
    }
}
