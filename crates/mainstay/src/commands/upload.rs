//! The upload of a file to a node, with its progress on a terminal.

use std::io::{self, Read};
use std::path::Path;

use bytes::Bytes;
use futures_util::stream;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use mainstay_api::mainstay::UploadImageRequest;
use mainstay_api::mainstay::node_service_client::NodeServiceClient;
use mainstay_client::Client;
use tonic::metadata::MetadataMap;
use tonic::{Request, Status};

const PART_BYTES: u64 = 1 << 20;

/// An image on a node.
#[derive(Debug)]
pub struct Upload {
    /// Its path there.
    pub path: String,
}

impl Upload {
    /// An image that is there already.
    pub fn at(path: String) -> Self {
        Self { path }
    }
}

/// Uploads a file to the node that `request` names. Compares its digest with what the node got.
pub async fn upload(client: &Client, request: &Request<()>, file: &Path) -> Result<Upload, Status> {
    let broken = |error: io::Error| {
        Status::failed_precondition(format!("cannot read {}: {error}", file.display()))
    };
    let opened = std::fs::File::open(file).map_err(broken)?;
    let size = opened.metadata().map_err(broken)?.len();
    let bar = bar(size);
    // The file of a client command is read as it is sent; nothing else waits for its one thread.
    let parts = stream::unfold((opened, bar.clone()), |(mut file, bar)| async move {
        let mut data = Vec::new();
        // A file that cannot be read further ends the upload; its digest then differs.
        let read = (&mut file).take(PART_BYTES).read_to_end(&mut data);
        if !matches!(read, Ok(1..)) {
            return None;
        }
        bar.inc(data.len() as u64);
        let data = Bytes::from(data);
        Some((UploadImageRequest { data }, (file, bar)))
    });
    let mut upload = Request::new(parts);
    let headers = request.metadata().clone().into_headers();
    *upload.metadata_mut() = MetadataMap::from_headers(headers);
    let mut node = NodeServiceClient::new(client.channel());
    let uploaded = node.upload_image(upload).await;
    bar.finish_and_clear();
    let uploaded = uploaded?.into_inner().messages.pop().unwrap_or_default();
    if uploaded.size_bytes != size {
        return Err(Status::aborted(format!(
            "{} has {size} bytes, the node received {}",
            file.display(),
            uploaded.size_bytes
        )));
    }
    Ok(Upload::at(uploaded.path))
}

/// Hidden unless stderr is a terminal.
fn bar(size: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(size), ProgressDrawTarget::stderr());
    let template = "uploading {bar:30} {bytes}/{total_bytes} {bytes_per_sec}";
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
