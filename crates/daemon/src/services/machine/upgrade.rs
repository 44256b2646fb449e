//! Upgrade and Rollback: checked completely, started, and answered.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use mainstay_api::envelope;
use mainstay_api::machine::upgrade_request::RebootMode;
use mainstay_api::machine::{Rollback, RollbackResponse, Upgrade, UpgradeRequest, UpgradeResponse};
use mainstay_lifecycle::StartError;
use mainstay_lifecycle::platform::PlatformName;
use tonic::{Response, Status};

use crate::engines::upgrade::formats;
use crate::node::Node;
use crate::requester::Requester;
use crate::rpc::status;

/// The kernel takes no longer path.
const MAX_PATH_BYTES: usize = 4095;

pub(super) async fn upgrade(
    node: &Node,
    request: &UpgradeRequest,
) -> Result<Response<UpgradeResponse>, Status> {
    let image = image(&request.image)?;
    if RebootMode::try_from(request.reboot_mode).is_err() {
        let mode = request.reboot_mode;
        return Err(Status::invalid_argument(format!(
            "reboot_mode {mode} is not a mode of this request"
        )));
    }
    check_platform(node)?;
    check_idle(node)?;
    let received = node.engines.upgrade.receive(image, request.force).await;
    let received = received.map_err(|error| status::of_receive(&error))?;
    let started = node
        .engines
        .lifecycle
        .upgrade(who(), received, request.stage);
    let actor = started.await.map_err(|error| status::of_sequence(&error))?;
    Ok(Response::new(envelope(Upgrade {
        metadata: None,
        // Existing clients print these words.
        ack: "Upgrade request received".to_owned(),
        actor_id: actor.to_string(),
    })))
}

pub(super) async fn roll_back(node: &Node) -> Result<Response<RollbackResponse>, Status> {
    check_platform(node)?;
    check_idle(node)?;
    let slots = node.engines.upgrade.slots.clone();
    let other = tokio::task::spawn_blocking(move || slots.other_slot(formats())).await;
    let other = other.map_err(|_| Status::internal("reading the slots failed"))?;
    other.map_err(|error| status::of_slots(&error))?;
    let started = node.engines.lifecycle.roll_back(who()).await;
    let actor = started.map_err(|error| status::of_sequence(&error))?;
    Ok(Response::new(envelope(Rollback {
        metadata: None,
        actor_id: actor.to_string(),
    })))
}

/// The path of the image. A reference to a registry has no leading slash.
fn image(text: &str) -> Result<PathBuf, Status> {
    if text.is_empty() {
        return Err(Status::invalid_argument(
            "an upgrade needs an image: the path of an OCI archive or layout on the node, or a file \
             uploaded with mainstay upgrade FILE",
        ));
    }
    if text.len() > MAX_PATH_BYTES || text.contains('\0') {
        return Err(Status::invalid_argument(
            "the image is no path: it is too long or contains a NUL byte",
        ));
    }
    if !text.starts_with('/') {
        return Err(Status::unimplemented(format!(
            "{text:?} is no absolute path; images of registries need the image store, which this \
             version of mainstay does not have: upload the image with mainstay upgrade FILE"
        )));
    }
    let path = OsString::from_vec(mainstay_paths::from_wire(text));
    Ok(PathBuf::from(path))
}

fn check_platform(node: &Node) -> Result<(), Status> {
    match node.engines.lifecycle.platform.name() {
        PlatformName::Container | PlatformName::Host => Ok(()),
        PlatformName::Metal => Err(Status::unimplemented(
            "upgrades on platform \"metal\" write disks, which this version of mainstay does not",
        )),
    }
}

/// A sequence that runs refuses the next one; before an image is read in vain.
fn check_idle(node: &Node) -> Result<(), Status> {
    // One that has published its end lets the next one start.
    let running = node.engines.lifecycle.sequences.running();
    let Some(running) = running.filter(|running| running.ended.is_none()) else {
        return Ok(());
    };
    Err(status::of_sequence(&StartError::Busy {
        sequence: running.sequence,
        actor: running.actor,
        requested_by: running.requested_by,
    }))
}

fn who() -> String {
    Requester::current().who.to_string()
}
