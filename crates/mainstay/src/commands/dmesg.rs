//! `mainstay dmesg`

use clap::Args;
use mainstay_api::os::DmesgRequest;

use super::connect;
use super::streams::print_text;
use crate::cli::Global;
use crate::failure::Outcome;

/// Show kernel messages
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay dmesg\n  \
    mainstay dmesg -f --new")]
pub struct Dmesg {
    /// Follow new messages
    #[arg(short, long)]
    follow: bool,

    /// Skip messages logged before now
    #[arg(long, requires = "follow")]
    new: bool,
}

impl Dmesg {
    pub async fn run(self, global: &Global) -> Outcome {
        let client = connect(global).await?;
        let mut machine = client.machine();
        let request = client.request(DmesgRequest {
            follow: self.follow,
            tail: self.new,
        });
        let stream = client.within(machine.dmesg(request)).await?.into_inner();
        print_text(&client, global.output, stream).await
    }
}
