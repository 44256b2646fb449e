//! `mainstay upgrade`

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use mainstay_api::machine::UpgradeRequest;
use mainstay_client::Client;
use tonic::{Request, Status};

use super::connect;
use super::sequence::{Sequence, WaitOptions};
use super::upload::{self, Upload};
use crate::cli::Global;
use crate::failure::{Failure, Outcome};

/// Uploads and their verification take as long as the link and the disk need.
const START_TIMEOUT: Duration = Duration::from_secs(3600);

/// Upgrade nodes, one after another, and wait until each is confirmed
///
/// The image is uploaded, verified and written to the idle slot. The new version starts on trial:
/// unless it is healthy within upgrade.deadline, the version before comes back by itself. Workloads
/// run on, and no connection is refused.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay upgrade mainstay-0.2.0.tar\n  \
    mainstay upgrade mainstay-0.2.0.tar -n n1,n2,n3     one node at a time, stops at the first failure\n  \
    mainstay upgrade --image /srv/mainstay-0.2.0.tar    a path on the node\n  \
    mainstay upgrade --stage mainstay-0.2.0.tar         switch at the next start of the node\n\n\
    mainstay rollback returns to the version before.")]
pub struct Upgrade {
    /// Upgrade image on this machine, which is uploaded
    #[arg(value_name = "IMAGE", required_unless_present = "image")]
    file: Option<PathBuf>,

    /// Path of the upgrade image on the node
    #[arg(long, value_name = "PATH", conflicts_with = "file")]
    image: Option<String>,

    /// Write the image, and switch at the next start of the node
    #[arg(long)]
    stage: bool,

    /// Upgrade also to the version that runs
    #[arg(long)]
    force: bool,

    /// Accepted for existing scripts: an upgrade always keeps the data of the node
    #[arg(long)]
    preserve: bool,

    #[command(flatten)]
    wait: WaitOptions,
}

impl Upgrade {
    pub async fn run(self, global: &Global) -> Outcome {
        if let Some(file) = &self.file {
            check(file)?;
        }
        let client = connect(global).await?;
        let sequence = Sequence {
            name: "upgrade",
            done: match self.stage {
                true => "staged; the next start of the node switches",
                false => "upgraded",
            },
            returns: !self.stage,
            replaces_identity: false,
            start_timeout: Some(START_TIMEOUT),
            wait: &self.wait,
        };
        sequence
            .run(global, &client, |client, request| {
                let this = &self;
                async move { this.start(&client, &request).await }
            })
            .await
    }

    /// Uploads the image if it is a file here, and starts the upgrade of one node.
    async fn start(&self, client: &Client, request: &Request<()>) -> Result<String, Status> {
        let image = match (&self.file, &self.image) {
            (Some(file), _) => upload::upload(client, request, file).await?,
            (None, image) => Upload::at(image.clone().unwrap_or_default()),
        };
        let request = request.metadata().clone().into_headers();
        let mut upgrade = Request::new(UpgradeRequest {
            image: image.path,
            preserve: self.preserve,
            stage: self.stage,
            force: self.force,
            ..UpgradeRequest::default()
        });
        *upgrade.metadata_mut() = tonic::metadata::MetadataMap::from_headers(request);
        let mut answer = client.machine().upgrade(upgrade).await?.into_inner();
        Ok(answer.messages.pop().unwrap_or_default().actor_id)
    }
}

/// Fails before a connection is made for a file that cannot be an image.
fn check(file: &Path) -> Outcome {
    let opened = File::open(file).and_then(|opened| opened.metadata());
    let metadata = opened.map_err(|error| Failure::file("read", file, &error))?;
    if metadata.is_file() {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "{} is no file; pack a layout directory with tar, or name a path on the node with --image",
        file.display()
    )))
}
