//! `Slots`: the binaries in the two slots and the end of the last switch.

use mainstay_api::mainstay::{Slot, Slots, SwitchResult};
use mainstay_slots::{Content, Origin, Outcome, SlotName, SlotRecord, Switch};
use tonic::Status;

use crate::engines::upgrade::Upgrade;
use crate::rpc::status::of_slots;

pub async fn slots(upgrade: &Upgrade) -> Result<Slots, Status> {
    let slots = upgrade.slots.clone();
    let read = tokio::task::spawn_blocking(move || slots.read()).await;
    let record = read.map_err(|_| Status::internal("reading the slots failed"))?;
    let record = record.map_err(|error| of_slots(&error))?;
    Ok(record.map_or_else(Slots::default, answer))
}

fn answer(record: SlotRecord) -> Slots {
    let names = [SlotName::A, SlotName::B];
    let slots = names
        .into_iter()
        .filter_map(|name| Some(slot(name, record.content(name)?)));
    Slots {
        metadata: None,
        slots: slots.collect(),
        current: record.current.to_string(),
        trial: (record.trial.as_ref()).map_or_else(String::new, |trial| trial.slot.to_string()),
        staged: record.trial.as_ref().is_some_and(|trial| trial.staged),
        last: record.last.map(result),
    }
}

fn slot(name: SlotName, content: &Content) -> Slot {
    let binary = &content.binary;
    Slot {
        name: name.to_string(),
        version: binary.facts.version.clone(),
        sha: binary.facts.sha.clone(),
        digest: binary.digest.to_string(),
        size_bytes: binary.size_bytes,
        written: content.written.clone(),
        manifest: match &content.origin {
            Origin::Installed => String::new(),
            Origin::Image { manifest } => manifest.to_string(),
        },
        state_format: binary.facts.state_format,
    }
}

fn result(switch: Switch) -> SwitchResult {
    let (kept, reason) = match switch.outcome {
        Outcome::Kept => (true, String::new()),
        Outcome::Returned { reason } => (false, reason),
    };
    SwitchResult {
        kind: switch.trial.kind.to_string(),
        from_version: switch.from,
        to_version: switch.to,
        kept,
        reason,
        time: switch.time,
        actor_id: switch.trial.actor_id,
    }
}
