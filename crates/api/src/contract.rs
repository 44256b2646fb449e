//! The generated code, one module per protobuf package.
//!
//! Nothing here is written by hand; the comments in `proto/` document messages and rpcs. Lints are
//! off in this module alone, because the style is that of the generator.

#![allow(clippy::all, unused_qualifications)]

pub mod aurae {
    pub mod cells {
        pub mod v0 {
            tonic::include_proto!("aurae.cells.v0");
        }
    }
    pub mod discovery {
        pub mod v0 {
            tonic::include_proto!("aurae.discovery.v0");
        }
    }
    pub mod observe {
        pub mod v0 {
            tonic::include_proto!("aurae.observe.v0");
        }
    }
}
pub mod common {
    tonic::include_proto!("common");
}
pub mod google {
    pub mod rpc {
        tonic::include_proto!("google.rpc");
    }
}
pub mod machine {
    tonic::include_proto!("machine");
}
pub mod mainstay {
    tonic::include_proto!("mainstay");
}
pub mod network {
    tonic::include_proto!("network");
}
pub mod observe {
    tonic::include_proto!("observe");
}
pub mod os {
    tonic::include_proto!("os");
}
pub mod resources {
    pub mod stats {
        tonic::include_proto!("resources.stats");
    }
    pub mod timestamp {
        tonic::include_proto!("resources.timestamp");
    }
}
pub mod runtime {
    tonic::include_proto!("runtime");
}
pub mod schedule {
    tonic::include_proto!("schedule");
}
pub mod services {
    pub mod auth {
        tonic::include_proto!("services.auth");
    }
}
pub mod stats {
    tonic::include_proto!("stats");
}
pub mod storage {
    tonic::include_proto!("storage");
}
pub mod time {
    tonic::include_proto!("time");
}
pub mod v1alpha {
    tonic::include_proto!("v1alpha");
}
