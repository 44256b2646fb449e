//! Reboot, Shutdown and Reset: checked, started, and answered at once.

use mainstay_api::envelope;
use mainstay_api::machine::reboot_request::Mode;
use mainstay_api::machine::reset_request::WipeMode;
use mainstay_api::machine::{
    Reboot, RebootRequest, RebootResponse, Reset, ResetEntry, ResetRequest, ResetResponse,
    Shutdown, ShutdownRequest, ShutdownResponse,
};
use mainstay_lifecycle::platform::PlatformName;
use tonic::{Response, Status};

use crate::engines::lifecycle::{Label, ResetOptions, reset};
use crate::node::Node;
use crate::requester::Requester;
use crate::rpc::{blocking, status};
use crate::text::shown_path;

/// More partitions than there are labels are a mistake.
const MAX_PARTITIONS: usize = 16;

pub(super) async fn reboot(
    node: &Node,
    request: &RebootRequest,
) -> Result<Response<RebootResponse>, Status> {
    let forced = match Mode::try_from(request.mode) {
        // No platform that is served reboots through firmware of its own choice.
        Ok(Mode::Default | Mode::Powercycle) => false,
        Ok(Mode::Force) => true,
        Err(_) => return Err(unknown("mode", request.mode)),
    };
    let started = node.engines.lifecycle.reboot(who(), forced).await;
    let actor = started.map_err(|error| status::of_sequence(&error))?;
    Ok(Response::new(envelope(Reboot {
        metadata: None,
        actor_id: actor.to_string(),
    })))
}

pub(super) async fn shut_down(
    node: &Node,
    request: &ShutdownRequest,
) -> Result<Response<ShutdownResponse>, Status> {
    let started = node.engines.lifecycle.shut_down(who(), request.force).await;
    let actor = started.map_err(|error| status::of_sequence(&error))?;
    Ok(Response::new(envelope(Shutdown {
        metadata: None,
        actor_id: actor.to_string(),
    })))
}

pub(super) async fn reset(
    node: &Node,
    request: &ResetRequest,
) -> Result<Response<ResetResponse>, Status> {
    let labels = labels(node, request)?;
    let state = node.state.clone();
    let wanted = labels.clone();
    let entries = blocking("the state of the node", move || {
        reset::list(&state, &wanted)
    });
    let entries = entries.await?.into_iter().map(|entry| ResetEntry {
        label: entry.label.to_string(),
        path: shown_path(&entry.path),
        files: entry.files,
        bytes: entry.bytes,
    });
    let entries = entries.collect();
    let actor_id = if request.dry_run {
        String::new()
    } else {
        let options = ResetOptions {
            graceful: request.graceful,
            reboot: request.reboot,
            labels,
        };
        let started = node.engines.lifecycle.reset(who(), options).await;
        let actor = started.map_err(|error| status::of_sequence(&error))?;
        actor.to_string()
    };
    Ok(Response::new(envelope(Reset {
        metadata: None,
        actor_id,
        entries,
    })))
}

/// Returns the labels to wipe. A disk of the machine is never wiped.
fn labels(node: &Node, request: &ResetRequest) -> Result<Vec<Label>, Status> {
    let platform = node.engines.lifecycle.platform.name();
    if platform == PlatformName::Metal {
        return Err(Status::unimplemented(
            "Reset on platform \"metal\" wipes disks, which this version of mainstay does not",
        ));
    }
    let no_disks = || {
        Status::failed_precondition(format!(
            "platform \"{platform}\" does not own the disks of the machine: a reset wipes the \
             node's state, by the labels STATE and EPHEMERAL, and no user disk"
        ))
    };
    match WipeMode::try_from(request.mode) {
        Ok(WipeMode::All | WipeMode::SystemDisk) => {}
        Ok(WipeMode::UserDisks) => return Err(no_disks()),
        Err(_) => return Err(unknown("mode", request.mode)),
    }
    if !request.user_disks_to_wipe.is_empty() {
        return Err(no_disks());
    }
    let partitions = &request.system_partitions_to_wipe;
    if partitions.is_empty() {
        return Ok(Label::ALL.to_vec());
    }
    if partitions.len() > MAX_PARTITIONS {
        return Err(Status::invalid_argument(format!(
            "system_partitions_to_wipe names {} partitions; the labels are STATE and EPHEMERAL",
            partitions.len()
        )));
    }
    let mut labels = Vec::new();
    for partition in partitions {
        let label: Label = partition.label.parse().map_err(status::invalid)?;
        if partition.wipe && !labels.contains(&label) {
            labels.push(label);
        }
    }
    if labels.is_empty() {
        return Err(Status::invalid_argument(
            "system_partitions_to_wipe names no partition with wipe set, so there is nothing to \
             reset",
        ));
    }
    Ok(labels)
}

/// The status of the rpcs of a control plane.
pub(super) fn no_cluster(rpc: &str) -> Status {
    let missing = match rpc {
        "Kubeconfig" => "it needs a Kubernetes control plane on this node, whose CA signs it",
        "Recover" => "it needs an etcd member on this node, whose data it restores",
        _ => "it needs an etcd member and a control plane, which mainstay does not run",
    };
    Status::unimplemented(format!(
        "machine.MachineService/{rpc} is not served by mainstay {}: {missing}",
        env!("CARGO_PKG_VERSION")
    ))
}

fn who() -> String {
    Requester::current().who.to_string()
}

fn unknown(field: &str, number: i32) -> Status {
    Status::invalid_argument(format!("{field} {number} is not a mode of this request"))
}
