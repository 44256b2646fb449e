//! `runtime.Pods`, `runtime.Instances`, `runtime.Spawn`: declared by the contract without any rpc.

use mainstay_api::runtime::instances_server::Instances;
use mainstay_api::runtime::pods_server::Pods;
use mainstay_api::runtime::spawn_server::Spawn;

#[derive(Debug)]
pub struct Empty;

impl Instances for Empty {}
impl Pods for Empty {}
impl Spawn for Empty {}
