//! Upgrade and rollback by two slots: the node answers, workloads run on, and whatever is wrong with
//! an image or a new version, one of the two versions runs.

mod broken;
mod builds;
mod command_line;
mod images;
mod interrupted;
mod staged;
mod switch;
mod upgrade_node;
