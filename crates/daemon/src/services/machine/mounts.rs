//! `Mounts`: mounted file systems and their free space.

use mainstay_api::machine::{MountStat, Mounts};
use mainstay_node::mounts::{SpaceSurvey, hidden};
use tonic::Status;

use crate::rpc::blocking;
use crate::text::path_to_wire;

pub(super) async fn mounts(survey: &SpaceSurvey) -> Result<Mounts, Status> {
    let survey = survey.clone();
    let (mounts, spaces) = blocking("the mounts", move || {
        let mounts = mainstay_node::mounts::mounts()?;
        let spaces = survey.of(&mounts);
        Ok((mounts, spaces))
    })
    .await?;
    let hidden = hidden(&mounts, &spaces);
    let stats = mounts
        .into_iter()
        .zip(spaces)
        .zip(hidden)
        .map(|((mount, space), hidden)| MountStat {
            filesystem: mount.source,
            size: space.size_bytes,
            available: space.available_bytes,
            mounted_on: path_to_wire(&mount.target),
            free: space.free_bytes,
            inodes: space.inodes,
            inodes_free: space.free_inodes,
            r#type: mount.fs_type,
            hidden,
        })
        .collect();
    Ok(Mounts {
        metadata: None,
        stats,
    })
}
