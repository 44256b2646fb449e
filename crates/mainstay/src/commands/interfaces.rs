//! `mainstay interfaces`

use clap::Args;
use mainstay_api::network::network_service_client::NetworkServiceClient;
use mainstay_api::network::{Interface, Interfaces as NodeInterfaces};

use super::connect;
use crate::cli::{Format, Global};
use crate::failure::Outcome;
use crate::output;
use mainstay_client::Answer;
use mainstay_client::format::{Table, size};

/// Show network interfaces: state, MTU, MAC address, addresses
#[derive(Debug, Args)]
#[command(
    visible_alias = "links",
    after_help = "Examples:\n  \
    mainstay interfaces\n  \
    mainstay interfaces -s                       with counters\n  \
    mainstay interfaces -n n1,n2 --up\n  \
    mainstay interfaces -o json | jq '.[].interfaces[] | select(.counters.rxErrors > 0)'"
)]
pub struct Interfaces {
    /// Show counters: bytes, packets, errors, dropped packets
    #[arg(short, long)]
    statistics: bool,

    /// Show only interfaces that are up
    #[arg(long)]
    up: bool,
}

impl Interfaces {
    pub async fn run(self, global: &Global) -> Outcome {
        let client = connect(global).await?;
        let mut answers = client
            .call_all((), |_, request| {
                let mut network = NetworkServiceClient::new(client.channel())
                    .max_decoding_message_size(mainstay_client::MAX_MESSAGE_BYTES);
                async move { network.interfaces(request).await }
            })
            .await?;
        if self.up {
            for answer in &mut answers {
                answer.message.interfaces.retain(is_up);
            }
        }
        match global.output {
            Format::Table => client.print_table(self.table(answers))?,
            format => output::print_answers(format, "network.Interfaces", &answers)?,
        }
        client.finish()
    }

    fn table(&self, answers: Vec<Answer<NodeInterfaces>>) -> Table {
        let mut header = vec!["NODE", "INDEX", "NAME", "STATE", "MTU", "MAC"];
        if self.statistics {
            header.extend(["RX", "RX PACKETS", "TX", "TX PACKETS", "ERRORS", "DROPPED"]);
        }
        header.push("ADDRESSES");
        let mut table = Table::new(&header);
        for Answer { node, message } in answers {
            for interface in message.interfaces {
                table.row(self.row(&node, interface));
            }
        }
        table
    }

    fn row(&self, node: &str, interface: Interface) -> Vec<String> {
        let mac = match interface.hardwareaddr.as_str() {
            "" => "-".to_owned(),
            mac => mac.to_owned(),
        };
        let mut row = vec![
            node.to_owned(),
            interface.index.to_string(),
            interface.name,
            interface.state,
            interface.mtu.to_string(),
            mac,
        ];
        if self.statistics {
            let counters = interface.counters.unwrap_or_default();
            row.extend([
                size(counters.rx_bytes),
                counters.rx_packets.to_string(),
                size(counters.tx_bytes),
                counters.tx_packets.to_string(),
                counters
                    .rx_errors
                    .saturating_add(counters.tx_errors)
                    .to_string(),
                counters
                    .rx_dropped
                    .saturating_add(counters.tx_dropped)
                    .to_string(),
            ]);
        }
        row.push(interface.ipaddress.join(" "));
        row
    }
}

fn is_up(interface: &Interface) -> bool {
    interface.flag_names.iter().any(|flag| flag == "UP")
}
