"""The event loops' drivers: one watches the socket by which the store says that something is done."""

import asyncio
import weakref

from ._ringdb import Driver

_drivers: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Driver]" = weakref.WeakKeyDictionary()


def future():
    """A future of the running loop, and the loop's driver."""
    loop = asyncio.get_running_loop()
    driver = _drivers.get(loop)
    if driver is None:
        driver = Driver()
        loop.add_reader(driver.fileno(), driver.drain)
        _drivers[loop] = driver
    return loop.create_future(), driver
