"""What people look at while runs go on: pages behind one gate, and a terminal's view."""
