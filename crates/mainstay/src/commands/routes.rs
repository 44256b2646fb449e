//! `mainstay routes`

use clap::Args;
use mainstay_api::network::network_service_client::NetworkServiceClient;
use mainstay_api::network::{AddressFamily, Route, Routes as NodeRoutes};

use super::connect;
use crate::cli::{Format, Global};
use crate::failure::Outcome;
use crate::output;
use mainstay_client::Answer;
use mainstay_client::format::Table;

/// Routing tables that have a name.
const TABLES: [(u32, &str); 3] = [(253, "default"), (254, "main"), (255, "local")];
const LOCAL_TABLE: u32 = 255;

/// Show routes
///
/// Shows every routing table except `local`, which has the addresses of the node itself.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay routes\n  \
    mainstay routes -6 --table main\n  \
    mainstay routes --all\n  \
    mainstay routes -o json | jq '.[].routes[] | select(.destination == \"0.0.0.0/0\")'")]
pub struct Routes {
    /// Show IPv4 routes only
    #[arg(short = '4', long, conflicts_with = "ipv6")]
    ipv4: bool,

    /// Show IPv6 routes only
    #[arg(short = '6', long)]
    ipv6: bool,

    /// Include the table `local`
    #[arg(short, long, conflicts_with = "table")]
    all: bool,

    /// Show this table only: main, local, default, or a number
    #[arg(long, value_name = "TABLE", value_parser = parse_table)]
    table: Option<u32>,
}

impl Routes {
    pub async fn run(self, global: &Global) -> Outcome {
        let client = connect(global).await?;
        let mut answers = client
            .call_all((), |_, request| {
                let mut network = NetworkServiceClient::new(client.channel())
                    .max_decoding_message_size(mainstay_client::MAX_MESSAGE_BYTES);
                async move { network.routes(request).await }
            })
            .await?;
        for answer in &mut answers {
            answer.message.routes.retain(|route| self.shows(route));
        }
        match global.output {
            Format::Table => client.print_table(table(answers))?,
            format => output::print_answers(format, "network.Routes", &answers)?,
        }
        client.finish()
    }

    fn shows(&self, route: &Route) -> bool {
        let family = match route.family() {
            AddressFamily::AfInet6 => !self.ipv4,
            _ => !self.ipv6,
        };
        let table = match self.table {
            Some(table) => route.table == table,
            // An older node does not tell the table.
            None => self.all || route.table != LOCAL_TABLE,
        };
        family && table
    }
}

fn table(answers: Vec<Answer<NodeRoutes>>) -> Table {
    let mut table = Table::new(&[
        "NODE",
        "DESTINATION",
        "GATEWAY",
        "INTERFACE",
        "METRIC",
        "PROTOCOL",
        "TYPE",
        "TABLE",
        "SOURCE",
    ]);
    for Answer { node, message } in answers {
        for route in message.routes {
            let mut hops = vec![(route.gateway, route.interface)];
            if !route.next_hops.is_empty() {
                let next = route.next_hops.into_iter();
                hops = next.map(|hop| (hop.gateway, hop.interface)).collect();
            }
            // One line per next hop.
            for (gateway, interface) in hops {
                table.row(vec![
                    node.clone(),
                    route.destination.clone(),
                    or_dash(gateway),
                    or_dash(interface),
                    route.metric.to_string(),
                    route.protocol_name.clone(),
                    route.r#type.clone(),
                    table_name(route.table),
                    or_dash(route.source.clone()),
                ]);
            }
        }
    }
    table
}

fn or_dash(text: String) -> String {
    if text.is_empty() {
        "-".to_owned()
    } else {
        text
    }
}

fn table_name(number: u32) -> String {
    let named = TABLES.iter().find(|(known, _)| *known == number);
    named.map_or_else(|| number.to_string(), |(_, name)| (*name).to_owned())
}

fn parse_table(text: &str) -> Result<u32, String> {
    if let Some((number, _)) = TABLES.iter().find(|(_, name)| *name == text) {
        return Ok(*number);
    }
    text.parse()
        .map_err(|_| "write main, local, default, or the number of a table".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_have_names_or_numbers() {
        assert_eq!(parse_table("main"), Ok(254));
        assert_eq!(parse_table("1000"), Ok(1000));
        assert!(parse_table("mine").is_err());
        assert!(parse_table("-1").is_err());
        assert_eq!(
            (table_name(255), table_name(7)),
            ("local".to_owned(), "7".to_owned())
        );
    }
}
