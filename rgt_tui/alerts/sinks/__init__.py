"""Where alerts are sent: one module per kind of sink, and the delivery that keeps them from doing harm."""
