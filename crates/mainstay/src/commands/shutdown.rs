//! `mainstay shutdown`

use clap::Args;
use mainstay_api::machine::ShutdownRequest;

use super::connect;
use super::sequence::{Sequence, WaitOptions};
use crate::cli::Global;
use crate::failure::Outcome;

/// Shut nodes down, one after another
///
/// On platform "container", the default, a shutdown stops everything that runs on the node and ends
/// its daemon; the machine stays up. On platform "host" it turns the machine off.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay shutdown\n  \
    mainstay shutdown -n n1,n2,n3\n  \
    mainstay shutdown --force                    instead of a sequence that hangs")]
pub struct Shutdown {
    /// Preempt a running sequence, kill what does not stop, and shut down whatever fails
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    wait: WaitOptions,
}

impl Shutdown {
    pub async fn run(self, global: &Global) -> Outcome {
        let client = connect(global).await?;
        let force = self.force;
        let sequence = Sequence {
            name: "shutdown",
            done: "shut down",
            returns: false,
            replaces_identity: false,
            start_timeout: None,
            wait: &self.wait,
        };
        sequence
            .run(global, &client, |client, request| {
                let request = request.map(|()| ShutdownRequest { force });
                async move {
                    let mut answer = client.machine().shutdown(request).await?.into_inner();
                    Ok(answer.messages.pop().unwrap_or_default().actor_id)
                }
            })
            .await
    }
}
