module example.invalid/ringdb/go

go 1.24
