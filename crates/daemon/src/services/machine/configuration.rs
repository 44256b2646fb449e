//! `ApplyConfiguration`

use std::sync::Arc;
use std::time::Duration;

use mainstay_api::machine::apply_configuration_request::Mode as WireMode;
use mainstay_api::machine::{ApplyConfiguration, ApplyConfigurationRequest};
use tonic::Status;

use crate::configuration::{self, Change, Effect, Mode};
use crate::node::Node;
use crate::requester::Requester;
use crate::rpc::status::of_changes;

pub(super) async fn apply(
    node: &Arc<Node>,
    request: ApplyConfigurationRequest,
) -> Result<ApplyConfiguration, Status> {
    let mode = WireMode::try_from(request.mode).map_err(|_| {
        Status::invalid_argument(format!("mode {} does not exist; TRY is 4", request.mode))
    })?;
    let timeout = request.try_mode_timeout.map(Duration::try_from).transpose();
    let trial_timeout = timeout
        .map_err(|_| Status::invalid_argument("try_mode_timeout is negative or not a duration"))?;
    let change = Change {
        data: request.data.into(),
        mode: match mode {
            WireMode::Reboot => Mode::Restart,
            WireMode::Auto => Mode::Auto,
            WireMode::NoReboot => Mode::WithoutRestart,
            WireMode::Staged => Mode::Staged,
            WireMode::Try => Mode::Trial,
        },
        dry_run: request.dry_run,
        trial_timeout,
        expected: request.expected.map(Into::into),
        by: Requester::current(),
    };
    let applied = configuration::apply(node, change).await;
    let applied = applied.map_err(|error| of_changes(&error))?;
    let mode = match applied.effect {
        Effect::Now => WireMode::NoReboot,
        Effect::NowAndOnRestart | Effect::OnRestart => WireMode::Staged,
        Effect::OnReboot => WireMode::Reboot,
        Effect::OnTrial => WireMode::Try,
    };
    Ok(ApplyConfiguration {
        metadata: None,
        warnings: applied.warnings,
        mode: mode.into(),
        mode_details: applied.details,
    })
}
