//! `mainstay ls`

use clap::Args;
use mainstay_api::machine::{FileInfo, ListRequest};

use super::connect;
use super::streams::{node_path, print_entries};
use crate::cli::{Format, Global};
use crate::failure::{Failure, Outcome};
use mainstay_client::format::local_time;
use mainstay_paths::escape_wire;

/// List files
///
/// Bytes of a name that are not UTF-8 and characters that a terminal does not show are printed as
/// \xHH, and a backslash before such a text as \x5c. All commands accept names in this form.
#[derive(Debug, Args)]
#[command(
    visible_alias = "list",
    after_help = "Examples:\n  \
    mainstay ls /etc\n  \
    mainstay ls -l /var/log\n  \
    mainstay ls -lR --depth 2 /etc\n  \
    mainstay ls -R / -o json | jq 'select(.size > 1e9) | .name'"
)]
pub struct Ls {
    /// Absolute path
    #[arg(default_value = "/", value_parser = node_path())]
    path: String,

    /// Show mode, owner, size and modification time
    #[arg(short)]
    long: bool,

    /// List subdirectories recursively
    #[arg(short = 'R', long)]
    recursive: bool,

    /// With -R, list at most N levels; 0 for unlimited
    #[arg(long, value_name = "N", requires = "recursive", default_value_t = 0, value_parser = clap::value_parser!(i32).range(0..))]
    depth: i32,

    /// Include extended attributes (with -o json or yaml)
    #[arg(long)]
    xattrs: bool,
}

impl Ls {
    pub async fn run(self, global: &Global) -> Outcome {
        if self.xattrs && global.output == Format::Table {
            return Err(Failure::usage(
                "the table has no extended attributes; --xattrs needs -o json or -o yaml",
            ));
        }
        let client = connect(global).await?;
        let mut machine = client.machine();
        let request = ListRequest {
            root: self.path.clone(),
            recurse: self.recursive,
            recursion_depth: self.depth,
            types: Vec::new(),
            report_xattrs: self.xattrs,
        };
        let stream = client
            .within(machine.list(client.request(request)))
            .await?
            .into_inner();
        print_entries(&client, global.output, stream, |info| {
            // The root of the listing is not one of its entries.
            let shown = info.relative_name != ".";
            shown.then(|| match self.long {
                true => long(info),
                false => format!("{}\n", escape_wire(&info.relative_name)),
            })
        })
        .await
    }
}

/// Formats `drwxr-xr-x     0     0      4096 2026-11-15 20:34:50 name -> target`
fn long(info: &FileInfo) -> String {
    let time =
        jiff::Timestamp::from_second(info.modified).map_or_else(|_| "-".to_owned(), local_time);
    let time = time.split('.').next().unwrap_or_default();
    let link = if info.link.is_empty() {
        String::new()
    } else {
        format!(" -> {}", escape_wire(&info.link))
    };
    format!(
        "{} {:>5} {:>5} {:>10} {time} {}{link}\n",
        mode(info.mode),
        info.uid,
        info.gid,
        info.size,
        escape_wire(&info.relative_name)
    )
}

/// Formats the mode bits of the API as `ls` does.
fn mode(bits: u32) -> String {
    let has = |bit: u32| bits & 1 << bit != 0;
    let kind = match () {
        () if has(31) => 'd',
        () if has(27) => 'l',
        () if has(21) => 'c',
        () if has(26) => 'b',
        () if has(25) => 'p',
        () if has(24) => 's',
        () => '-',
    };
    let mut text = String::from(kind);
    for (shift, special, letter) in [(6, 23, 's'), (3, 22, 's'), (0, 20, 't')] {
        let own = bits >> shift & 7;
        text.push(if own & 4 != 0 { 'r' } else { '-' });
        text.push(if own & 2 != 0 { 'w' } else { '-' });
        text.push(match (has(special), own & 1 != 0) {
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_formatted_as_ls_does() {
        assert_eq!(mode(0o644), "-rw-r--r--");
        assert_eq!(mode(1 << 31 | 1 << 20 | 0o777), "drwxrwxrwt");
        assert_eq!(mode(1 << 23 | 0o4755 & 0o777), "-rwsr-xr-x");
        assert_eq!(mode(1 << 22 | 0o744), "-rwxr-Sr--");
        assert_eq!(mode(1 << 26 | 1 << 21 | 0o600), "crw-------");
        assert_eq!(mode(1 << 27 | 0o777), "lrwxrwxrwx");
    }
}
