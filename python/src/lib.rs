//! `ringdb._ringdb`: the store for Python. The package beside it adds the exceptions, the part that belongs to
//! asyncio's event loop, and types.

mod asynchronous;
mod batch;
mod bytes;
mod error;
mod items;
mod reader;
mod store;
mod transaction;

use pyo3::prelude::*;

#[pymodule(gil_used = false)]
mod _ringdb {
    #[pymodule_export]
    use crate::asynchronous::{Driver, PairStream};
    #[pymodule_export]
    use crate::batch::Batch;
    #[pymodule_export]
    use crate::items::Items;
    #[pymodule_export]
    use crate::reader::{Reader, Snapshot};
    #[pymodule_export]
    use crate::store::{Db, Keyspace, Writer, open};
    #[pymodule_export]
    use crate::transaction::{Transaction, TransactionItems};
}
