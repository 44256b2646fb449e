//! `Mounts`: mounted file systems and their free space.

use mainstay_api::machine::{MountStat, Mounts};
use mainstay_node::mounts::SpaceSurvey;
use tonic::Status;

use crate::rpc::blocking;

pub(super) async fn mounts(survey: &SpaceSurvey) -> Result<Mounts, Status> {
    let survey = survey.clone();
    let (mounts, spaces) = blocking("the mounts", move || {
        let mounts = mainstay_node::mounts::mounts()?;
        let spaces = survey.of(&mounts);
        Ok((mounts, spaces))
    })
    .await?;
    let stats = mounts
        .into_iter()
        .zip(spaces)
        .map(|(mount, space)| MountStat {
            filesystem: mount.source,
            size: space.size_bytes,
            available: space.available_bytes,
            mounted_on: mount.target.to_string_lossy().into_owned(),
        })
        .collect();
    Ok(Mounts {
        metadata: None,
        stats,
    })
}
