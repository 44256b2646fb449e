//! `UploadImage`: stores an upgrade image on the node.

use std::sync::Arc;

use mainstay_api::mainstay::{UploadImageRequest, UploadedImage};
use mainstay_slots::SlotsError;
use tonic::{Status, Streaming};

use crate::engines::upgrade::{ReceiveError, Upgrade};
use crate::rpc::status::{of_receive, of_slots};

/// Bytes of one message; the writer gets them in one piece.
const MAX_PART_BYTES: usize = 4 << 20;

pub async fn upload(
    upgrade: &Upgrade,
    mut parts: Streaming<UploadImageRequest>,
) -> Result<UploadedImage, Status> {
    let turn = Arc::clone(&upgrade.uploading).try_lock_owned();
    let turn = turn.map_err(|_| of_receive(&ReceiveError::Busy("uploaded")))?;
    let slots = upgrade.slots.clone();
    let mut upload = blocking(move || slots.upload()).await?;
    while let Some(part) = parts.message().await? {
        let data = part.data;
        if data.len() > MAX_PART_BYTES {
            return Err(Status::invalid_argument(format!(
                "a part has {} bytes; the maximum is {MAX_PART_BYTES}",
                data.len()
            )));
        }
        upload = blocking(move || upload.write(&data).map(|()| upload)).await?;
    }
    // Until the file has its name, also if the caller is gone.
    let uploaded = blocking(move || {
        let _turn = turn;
        upload.finish()
    });
    let uploaded = uploaded.await?;
    if uploaded.size_bytes == 0 {
        upgrade.slots.remove_upload(&uploaded.path);
        return Err(Status::invalid_argument("the upload is empty"));
    }
    Ok(UploadedImage {
        metadata: None,
        path: uploaded.path.display().to_string(),
        digest: uploaded.digest.to_string(),
        size_bytes: uploaded.size_bytes,
    })
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SlotsError> + Send + 'static,
) -> Result<T, Status> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|error| of_slots(&error)),
        Err(_) => Err(Status::internal(
            "the upload failed; the node's log says why",
        )),
    }
}
