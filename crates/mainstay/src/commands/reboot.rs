//! `mainstay reboot`

use clap::Args;
use mainstay_api::machine::RebootRequest;
use mainstay_api::machine::reboot_request::Mode;

use super::connect;
use super::sequence::{Sequence, WaitOptions};
use crate::cli::Global;
use crate::failure::Outcome;

/// Reboot nodes, one after another, and wait until each serves again
///
/// On platform "container", the default, a reboot stops everything that runs on the node and
/// executes its daemon again; the machine stays up. On platform "host" it reboots the machine.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay reboot\n  \
    mainstay reboot -n n1,n2,n3                  one node at a time, stops at the first failure\n  \
    mainstay reboot -n n1,n2,n3 --max-unavailable 2\n  \
    mainstay reboot --force                      instead of a sequence that hangs\n  \
    mainstay reboot --no-wait -o json | jq -r '.[].actor_id'")]
pub struct Reboot {
    /// Preempt a running sequence, kill what does not stop, and reboot whatever fails
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    wait: WaitOptions,
}

impl Reboot {
    pub async fn run(self, global: &Global) -> Outcome {
        let client = connect(global).await?;
        let mode = match self.force {
            true => Mode::Force,
            false => Mode::Default,
        };
        let sequence = Sequence {
            name: "reboot",
            done: "rebooted",
            returns: true,
            replaces_identity: false,
            start_timeout: None,
            wait: &self.wait,
        };
        sequence
            .run(global, &client, |client, request| {
                let request = request.map(|()| RebootRequest { mode: mode.into() });
                async move {
                    let mut answer = client.machine().reboot(request).await?.into_inner();
                    Ok(answer.messages.pop().unwrap_or_default().actor_id)
                }
            })
            .await
    }
}
