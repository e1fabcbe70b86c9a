//! `ringdb._ringdb`: the store for Python. The package beside it adds the exceptions, the part that belongs to
//! asyncio's event loop, and types.

mod asynchronous;
mod batch;
mod bytes;
mod calls;
mod error;
mod filter;
mod items;
mod loose;
mod operator;
mod reader;
mod store;
mod transaction;

use pyo3::prelude::*;

#[pymodule(gil_used = false)]
mod _ringdb {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::asynchronous::{Driver, PairStream};
    #[pymodule_export]
    use crate::batch::Batch;
    #[pymodule_export]
    use crate::calls::{_end, _forked};
    #[pymodule_export]
    use crate::items::Items;
    #[pymodule_export]
    use crate::reader::{Reader, Snapshot};
    #[pymodule_export]
    use crate::store::{Db, Keyspace, Writer, open};
    #[pymodule_export]
    use crate::transaction::{Transaction, TransactionItems};

    #[pymodule_init]
    fn begin(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::calls::at_exit(module)
    }
}
