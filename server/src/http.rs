//! The server: everything between a socket and a handler.
//!
//! [`Server`] accepts connections. Each request passes the guard (API key, CORS, size of the body),
//! then a handler of one of the interfaces, which are modules with a `routes` function. A handler
//! takes [`Ready`] (the loaded model, woken if it slept), [`Client`] (the owner of prefixes) and
//! [`Body`] (the JSON object), makes a [`Generate`](crate::engine::Generate), and either waits for
//! its [`Outcome`] or answers with a stream ([`sse`]). Errors are [`ApiError`]s.
//!
//! | submodule | content |
//! |---|---|
//! | `adapters` | the adapters that requests may choose |
//! | `answer`, `probabilities` | parts of answers that all interfaces have |
//! | `app` | the loaded model, and its sleep |
//! | `body` | JSON bodies |
//! | `client` | API keys and tenants |
//! | `error` | errors in the shape of each interface |
//! | `events` | the events of the requests of one answer |
//! | `guard` | what every request passes |
//! | `json` | reading JSON within a budget of memory |
//! | `connections`, `server`, `socket` | sockets, shares of connections, and shutdown |
//! | `stream` | server-sent events |
//! | `work` | work for clients beside the thread that serves them, and its bounds |
//! | `written` | answers as JSON text |

mod adapters;
mod answer;
mod app;
mod body;
mod client;
mod connections;
mod error;
mod events;
mod guard;
mod id;
mod json;
mod probabilities;
mod server;
mod socket;
mod stream;
mod work;
mod written;

pub use adapters::{Adapters, LoadedAdapter, ScaledAdapters, Scales};
pub use answer::{account_json, millis, timings_json, usage_json};
pub use app::{App, Host, Loaded, ModelSummary, Ready, unix_time};
pub use body::Body;
pub(crate) use body::bytes;
pub use client::Client;
pub use error::{ApiError, ErrorKind};
pub use events::{Events, Outcome};
pub use id::new_id;
pub use probabilities::probabilities_json;
pub use server::{Server, Stop, router};
pub use stream::{Frames, Writer, sse};
pub(crate) use work::blocking;
pub(crate) use written::{json_list, json_text, n_values, write_json};
